"""The picture of a run: mean reward of each iteration and held-out success."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hyperrl.errors import MissingExtraError
from hyperrl.train.evaluation import Evaluation

__all__ = ["draw_reward_curve"]


def draw_reward_curve(
    path: Path, rewards: Sequence[float], evaluations: Sequence[tuple[int, Evaluation]]
) -> None:
    """Write a PNG: mean reward over iterations, held-out success with its 95 % interval.

    Args:
        path: the PNG; replaced atomically.
        rewards: mean reward of iterations 1, 2, ...; NaN where nothing was scored.
        evaluations: pairs of iteration and held-out evaluation.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - heavy, and only needed here
    except ImportError as error:
        raise MissingExtraError("matplotlib", "train") from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(range(1, len(rewards) + 1), rewards, color="tab:gray", lw=1, label="training reward")
    steps = [iteration for iteration, _ in evaluations]
    sampled = [result.sampled.success for _, result in evaluations]
    rates = [success.mean for success in sampled]
    below = [success.mean - success.low for success in sampled]
    above = [success.high - success.mean for success in sampled]
    axes.errorbar(
        steps, rates, [below, above], color="tab:blue", marker="o", capsize=3, label="held-out, sampled"
    )
    greedy = [result.greedy.success.mean for _, result in evaluations]
    axes.plot(steps, greedy, color="tab:orange", marker="s", label="held-out, greedy")
    axes.set(xlabel="iteration", ylabel="reward, success rate", ylim=(-0.02, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    temporary = path.with_name(f".{path.name}.tmp")
    figure.savefig(temporary, format="png", dpi=120)
    temporary.replace(path)
