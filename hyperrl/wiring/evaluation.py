"""Evaluating a policy on an environment: play every task several times, keep the episodes, count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyperrl.agents.base import load_program, program_name
from hyperrl.agents.env_pool import EnvPool
from hyperrl.agents.episode import EpisodePlan, RolloutSettings
from hyperrl.agents.limits import RolloutLimits
from hyperrl.agents.scorers import load_scorer
from hyperrl.envs.registration import load_entry_points, make_env
from hyperrl.errors import ConfigError, RolloutError
from hyperrl.sampling import EpisodeKey
from hyperrl.train.config import TrainConfig
from hyperrl.train.figures import EvalFigures, compute_figures, unscored_cause
from hyperrl.trajectory import Trajectory
from hyperrl.wiring.display import Display
from hyperrl.wiring.eval_directory import EvalDirectory
from hyperrl.wiring.eval_policies import EvalJob, OpenSeat, PolicyChoice
from hyperrl.wiring.held_out import evaluation_params
from hyperrl.wiring.rollout_thread import RolloutThread
from hyperrl.wiring.served import play_served_groups
from hyperrl.wiring.task_order import derive_seed, pick_held_out

__all__ = ["EvalReport", "EvalSettings", "run_evaluation"]

GIVE_UP_AFTER = 16
"""An endpoint that failed the first so many episodes in one way is not asked for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSettings:
    """What to evaluate, and how.

    Attributes:
        config: ``env``, ``evaluation`` (split, number of tasks, success), ``rollout`` (limits of an
            episode) and ``run.seed`` are used.
        policy: who plays.
        samples: episodes of each task, K.
        ks: for which k pass@k is estimated; none above ``samples``.
        temperature: in place of ``evaluation.temperature``; 0 takes the most likely token.
        out: folder for trajectories and summary; ``None`` keeps nothing.
        resume: go on with the evaluation in ``out``.

    Raises:
        ConfigError: a number does not fit the others.
    """

    config: TrainConfig
    policy: PolicyChoice
    samples: int = 1
    ks: tuple[int, ...] = (1,)
    temperature: float | None = None
    out: Path | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ConfigError(f"samples must be at least 1, got {self.samples}")
        for k in self.ks:
            if not 1 <= k <= self.samples:
                raise ConfigError(
                    f"pass@{k} needs k >= 1 and at least {max(k, 1)} samples of each task, and there are"
                    f" {self.samples}; give --samples {max(k, 1)} or leave it out of --k"
                )
        if self.resume and self.out is None:
            raise ConfigError("resume needs the folder of the evaluation that it goes on with: give --out")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalReport:
    """A finished evaluation.

    Attributes:
        what: what was evaluated, as JSON values.
        figures: what was found.
        resumed: episodes that an earlier part of the evaluation had played.
        reasons: why the first episode of each kind in ``figures.unscored`` has no reward.
    """

    what: dict[str, Any]
    figures: EvalFigures
    resumed: int
    reasons: Mapping[str, str]

    def summary(self) -> dict[str, Any]:
        """Return everything as one flat object, the content of ``summary.json``."""
        return {**self.what, **self.figures.metrics()}


def run_evaluation(settings: EvalSettings, display: Display) -> EvalReport:
    """Play ``samples`` episodes of each held-out task and count.

    With ``out``, episodes that ended are kept even if it is interrupted.

    Raises:
        ConfigError, DataError, EnvError, ModelError, RunDirectoryError: before anything is played, or where
            an endpoint refuses the key or the model.
        RolloutError: every episode failed in the same way.
    """
    load_entry_points()
    job, version = _make_job(settings, display)
    what = _describe(settings, job, version)
    with ExitStack() as stack:
        opened = stack.enter_context(settings.policy.open(job))
        folder = None
        if settings.out is not None:
            folder = stack.enter_context(
                EvalDirectory(settings.out, what, resume=settings.resume, tokenizer=opened.tokenizer)
            )
        plans = _plans(job, settings.samples)
        run = _Evaluation(job, opened, folder, display)
        run.play(plans)
        ended = [run.ended[plan.key] for plan in plans]
        figures = compute_figures(
            ended, threshold=settings.config.evaluation.success, ks=sorted(set(settings.ks))
        )
        report = EvalReport(what=what, figures=figures, resumed=run.resumed, reasons=_first_reasons(ended))
        display.stop()
        if folder is not None:
            folder.finish(ended, report.summary())
    return report


def _first_reasons(ended: Sequence[Trajectory]) -> dict[str, str]:
    found: dict[str, str] = {}
    for trajectory in ended:
        cause = unscored_cause(trajectory)
        if not cause or cause in found:
            continue
        terms = [f"{t.name}: {t.error.reason}" for t in trajectory.reward_terms if t.error is not None]
        found[cause] = trajectory.failure.reason if trajectory.failure is not None else "; ".join(terms)
    return found


def _make_job(settings: EvalSettings, display: Display) -> tuple[EvalJob, str]:
    """Return the job and the version of its environment."""
    config = settings.config
    split = config.evaluation.split
    for path in config.env.scorers:
        load_scorer(path)  # says now what is wrong with it
    env = make_env(config.env.id, **{**config.env.kwargs, "split": split})
    try:
        picks = pick_held_out(len(env.taskset), config.evaluation.episodes)
        version, scores_groups = str(env.version), env.scores_groups
        if env.gold_score < config.evaluation.success:
            display.note(
                f"the gold of {config.env.id} scores {env.gold_score:g}, and a success takes"
                f" {config.evaluation.success:g} (evaluation.success, --success)"
            )
    finally:
        env.close()
    job = EvalJob(
        config=config,
        params=evaluation_params(config, temperature=settings.temperature),
        picks=dict(picks),
        run_seed=derive_seed(config.run.seed, "evaluation"),
        scores_groups=scores_groups or bool(config.env.scorers),
    )
    return job, version


def _describe(settings: EvalSettings, job: EvalJob, version: str) -> dict[str, Any]:
    """Return what results depend on: what must be equal to go on with an evaluation."""
    config = settings.config
    rollout = config.rollout
    return {
        "env": config.env.id,
        "env_version": version,
        "env_kwargs": dict(config.env.kwargs),
        "split": config.evaluation.split,
        "tasks": len(job.picks),
        "samples": settings.samples,
        "policy": settings.policy.describe(),
        "scorers": list(config.env.scorers),
        "program": program_name(load_program(config.env.program)),
        "seed": config.run.seed,
        "temperature": job.params.temperature,
        "top_p": job.params.top_p,
        "top_k": job.params.top_k,
        "max_tokens": job.params.max_tokens,
        "max_turns": rollout.max_turns,
        "max_episode_tokens": rollout.max_episode_tokens,
        "wall_clock_s": rollout.wall_clock_s,
        "success": config.evaluation.success,
    }


def _plans(job: EvalJob, samples: int) -> list[EpisodePlan]:
    return [
        EpisodePlan(
            key=EpisodeKey(group_id, sample),
            env_id=job.config.env.id,
            env_kwargs=job.env_kwargs,
            task=task,
        )
        for group_id, task in job.picks.items()
        for sample in range(samples)
    ]


class _Evaluation:
    """The episodes of one evaluation.

    Attributes:
        ended: every episode that has ended, those of an earlier part among them.
        resumed: how many of them there were at the start.
    """

    def __init__(
        self, job: EvalJob, opened: OpenSeat, folder: EvalDirectory | None, display: Display
    ) -> None:
        self._job = job
        self._opened = opened
        self._folder = folder
        self._display = display
        self._kinds: set[str | None] = set()
        self._succeeded = self._scored = self._played = 0
        self.ended: dict[EpisodeKey, Trajectory] = {}
        self.resumed = 0

    def play(self, plans: Sequence[EpisodePlan]) -> None:
        """Play what has not ended yet.

        Raises:
            RolloutError: every episode failed in the same way.
        """
        self._take_over(plans)
        missing = [plan for plan in plans if plan.key not in self.ended]
        self._display.start("evaluation", len(plans))
        if self.resumed:
            self._display.advance(self.resumed, f"{self.resumed} were there")
        if not missing:
            return
        config = self._job.config
        settings = RolloutSettings(
            run_id=config.run.name,
            run_seed=self._job.run_seed,
            seats={"main": self._opened.seat},
            program=load_program(config.env.program),
            scorers=[load_scorer(path) for path in config.env.scorers],
            scorer_timeout_s=config.env.scorer_timeout_s,
            limits=RolloutLimits(
                max_turns=config.rollout.max_turns,
                max_episode_tokens=config.rollout.max_episode_tokens,
                max_context=self._opened.context_length,
                wall_clock_s=config.rollout.wall_clock_s,
            ),
        )
        with EnvPool() as envs, RolloutThread() as thread:
            try:
                thread.run(
                    play_served_groups(
                        missing,
                        settings,
                        envs=envs,
                        max_concurrent=config.rollout.max_concurrent,
                        on_episode=self._on_episode,
                    )
                )
            except RolloutError:
                if self.resumed == 0 or len(self.ended) < len(plans):
                    raise  # else only the few that were missing failed, and they are counted
            finally:
                if self._opened.aclose is not None:
                    thread.run(_closing(self._opened))

    def _take_over(self, plans: Sequence[EpisodePlan]) -> None:
        """Count what an earlier part of the evaluation has played."""
        there = self._folder.ended if self._folder is not None else {}
        broken = {plan.key.group_id for plan in plans if plan.key not in there}
        for key, trajectory in there.items():
            if not (self._job.scores_groups and key.group_id in broken):
                self.ended[key] = trajectory
                self._count(trajectory)
        self.resumed = len(self.ended)

    def _on_episode(self, trajectory: Trajectory) -> None:
        self.ended[EpisodeKey(trajectory.group_id, trajectory.sample_index)] = trajectory
        if self._folder is not None:
            self._folder.add(trajectory)
        self._count(trajectory)
        rate = f"success {self._succeeded / self._scored:.3f}" if self._scored else "nothing scored yet"
        self._display.advance(text=rate)
        self._refuse_dead_endpoint(trajectory)

    def _count(self, trajectory: Trajectory) -> None:
        if trajectory.usable and trajectory.reward is not None:
            self._scored += 1
            self._succeeded += trajectory.reward >= self._job.config.evaluation.success

    def _refuse_dead_endpoint(self, trajectory: Trajectory) -> None:
        """Give up where an endpoint never answered, rather than wait for all retries of all episodes."""
        failure = trajectory.failure
        self._played += 1
        self._kinds.add(failure.kind if failure is not None else None)
        if self._played != GIVE_UP_AFTER or self.resumed or len(self._kinds) > 1 or failure is None:
            return
        if failure.kind.startswith("endpoint_"):
            raise RolloutError(
                f"the first {GIVE_UP_AFTER} episodes all failed with {failure.kind}, so the others are not"
                f" tried. The last: {failure.reason}"
            )


async def _closing(opened: OpenSeat) -> None:
    if opened.aclose is not None:
        await opened.aclose()
