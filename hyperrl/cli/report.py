"""Results as people read them: tables and printed episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from hyperrl.causes import count_causes
from hyperrl.trajectory import Event, Trajectory

if TYPE_CHECKING:
    from hyperrl.train.estimates import Estimate
    from hyperrl.train.evaluation import Evaluation
    from hyperrl.train.figures import EvalFigures
    from hyperrl.wiring.evaluation import EvalReport
    from hyperrl.wiring.training import RunOutcome

__all__ = [
    "print_causes",
    "print_episode",
    "print_evaluation",
    "print_figures",
    "print_rollout",
    "print_summary",
]


def print_summary(outcome: RunOutcome) -> None:
    """Print held-out success before and after a run, and where its files lie."""
    result, folder = outcome.result, outcome.directory
    table = Table(title=_title(result.before))
    for heading in ("", "before", "after", "gain"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name in ("sampled", "greedy"):
        before: EvalFigures = getattr(result.before, name)
        after: EvalFigures = getattr(result.after, name)
        gain = after.success.mean - before.success.mean
        table.add_row(name, _rate(before.success), _rate(after.success), f"{gain:+.3f}")
    console = Console()
    console.print(table)
    console.print(
        f"{result.iterations} iterations, policy version {result.policy_version},"
        f" {result.seconds:.0f} s. {folder} holds config.yaml, metrics.jsonl, trajectories/,"
        " evaluations/, reward_curve.png, model/ and summary.json.",
        highlight=False,
        soft_wrap=True,
    )


def print_evaluation(evaluation: Evaluation) -> None:
    """Print held-out success of one model."""
    table = Table(title=_title(evaluation))
    for heading in ("", "success", "mean reward", "unscored"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name in ("sampled", "greedy"):
        figures: EvalFigures = getattr(evaluation, name)
        unscored = figures.episodes - figures.scored
        table.add_row(name, _rate(figures.success), f"{figures.reward.mean:.3f}", str(unscored))
    for k, estimate in evaluation.sampled.pass_at.items():
        if k > 1:
            table.add_row(f"pass@{k}", _rate(estimate), "", "")
    Console().print(table)
    for name in ("sampled", "greedy"):
        print_causes(getattr(evaluation, name).causes, of=f"{name} episodes")


def print_figures(report: EvalReport) -> None:
    """Print the figures of an evaluation."""
    figures, what = report.figures, report.what
    samples, policy = what["samples"], what["policy"]
    who = policy.get("name") or policy.get("model") or policy.get("path")
    table = Table(title=f"{what['env']} {what['split']}: {who}, {what['tasks']} tasks x {samples}")
    for heading in ("", "value", "95 % interval", "tasks"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row(f"success (avg@{samples})", *_estimate(figures.success))
    for k, estimate in figures.pass_at.items():
        table.add_row(f"pass@{k}", *_estimate(estimate))
    table.add_row("mean reward", *_estimate(figures.reward))
    table.add_section()
    resumed = f" ({report.resumed} from before)" if report.resumed else ""
    table.add_row("episodes", f"{figures.episodes}{resumed}")
    table.add_row("unscored, in no figure above", str(figures.episodes - figures.scored))
    for title, counts in (
        ("cause", figures.causes),
        ("unscored", figures.unscored),
        ("cut by", figures.truncated),
        ("tool calls", figures.tool_calls),
    ):
        for kind, count in counts.items():
            table.add_row(f"  {title} {kind}", str(count))
    table.add_row("answers cut by the token limit", str(figures.clipped))
    table.add_row("turns an episode", f"{figures.turns:.2f}")
    if figures.completion_tokens:
        table.add_row("tokens read", str(figures.prompt_tokens))
        table.add_row("tokens sampled", str(figures.completion_tokens))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for kind, reason in report.reasons.items():
        console.print(_printable(f"the first {kind}: {reason:.500}"), markup=False)


def _estimate(estimate: Estimate) -> tuple[str, str, str]:
    interval = "-" if math.isnan(estimate.low) else f"[{estimate.low:.3f}, {estimate.high:.3f}]"
    return f"{estimate.mean:.3f}", interval, str(estimate.tasks)


def print_causes(causes: Mapping[str, int], *, of: str = "episodes") -> None:
    """Print in one line why episodes came out as they did, such as "wrong 71 % (71)"."""
    total = sum(causes.values())
    parts = [f"{cause.replace('_', ' ')} {count / total:.0%} ({count})" for cause, count in causes.items()]
    if parts:
        Console().print(f"{total} {of}: {', '.join(parts)}", highlight=False, soft_wrap=True)


def print_rollout(trajectories: Sequence[Trajectory], *, success: float = 1.0) -> None:
    """Print what a rollout came to: rewards, lengths, why episodes came out, were cut or failed.

    Args:
        trajectories: the episodes.
        success: the least reward of an episode that is right.
    """
    rewards = [t.reward for t in trajectories if t.usable and t.reward is not None]
    sampled = sum(len(turn.action_ids) for t in trajectories for turn in t.turns)
    table = Table(title=f"{len(trajectories)} episodes")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("scored", str(len(rewards)))
    table.add_row("mean reward", f"{sum(rewards) / len(rewards):.3f}" if rewards else "-")
    table.add_row("turns", str(sum(len(t.turns) for t in trajectories)))
    table.add_row("sampled tokens", str(sampled))
    cut = Counter(str(t.truncation_reason) for t in trajectories if t.truncated)
    failed = Counter(t.failure.kind for t in trajectories if t.failure is not None)
    tools = Counter(c.status for t in trajectories for e in t.events for c in e.tool_calls)
    for title, counts in (("cut by", cut), ("failed with", failed), ("tool calls", tools)):
        for kind, count in sorted(counts.items()):
            table.add_row(f"{title} {kind}", str(count))
    Console().print(table)
    print_causes(count_causes(trajectories, success=success))


def print_episode(trajectory: Trajectory) -> None:
    """Print an episode turn by turn: what was read, said and called, and what it earned."""
    console = Console(highlight=False)
    console.rule(f"{trajectory.env_id} task {trajectory.task_id} sample {trajectory.sample_index}")
    for event in trajectory.events:
        _print_event(console, trajectory, event)
    for term in trajectory.reward_terms:
        score = "unscored" if term.score is None else f"{term.score:g}"
        why = f" ({term.error.kind}: {term.error.reason})" if term.error else ""
        why = why or (f" ({term.cause})" if term.cause else "")
        where = "" if term.turn is None else f" at turn {term.turn}"
        console.print(f"reward {term.name}{where}: {score} x {term.weight:g}{why}", markup=False)
    if trajectory.failure is not None:
        failure = trajectory.failure
        console.print(f"failure {failure.kind} at {failure.stage}: {failure.reason}", markup=False)
    if trajectory.truncation_reason is not None:
        console.print(f"truncated: {trajectory.truncation_reason}", markup=False)
    total = "unscored" if trajectory.reward is None else f"{trajectory.reward:g}"
    console.print(f"total reward: {total}", markup=False)


def _print_event(console: Console, trajectory: Trajectory, event: Event) -> None:
    if event.observation:
        console.print(_printable(event.observation), style="cyan", markup=False)
    if event.turn is not None:
        turn = trajectory.turns[event.turn]
        console.print(_printable(event.action) or "(nothing)", style="green", markup=False)
        console.print(
            f"turn {event.turn}: {len(turn.context_ids)} tokens read, {len(turn.action_ids)} sampled,"
            f" stop reason {turn.stop_reason}",
            style="dim",
            markup=False,
        )
    for call in event.tool_calls:
        line = f"tool {call.name}({call.arguments}) -> {call.status}: {call.result}"
        console.print(_printable(line), style="yellow", markup=False)


def _printable(text: str) -> str:
    """Lone surrogates cannot be written to a terminal."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _title(evaluation: Evaluation) -> str:
    return f"held-out success ({evaluation.sampled.success.tasks} tasks, 95 % interval)"


def _rate(rate: Estimate) -> str:
    return f"{rate.mean:.3f} [{rate.low:.2f}, {rate.high:.2f}]"
