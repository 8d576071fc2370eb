"""Serving a model to a program that somebody starts by hand, and keeping what it did."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from hyperrl.agents.base import Steps
from hyperrl.agents.limits import RolloutLimits
from hyperrl.agents.recorder import PolicySeat, Recorder
from hyperrl.agents.rendering import load_renderer
from hyperrl.agents.sealing import Gathered, compute_metrics, seal_events, seal_turns
from hyperrl.errors import RunDirectoryError
from hyperrl.harness.gateway import Gateway, GatewaySession, GatewaySettings
from hyperrl.sampling import EpisodeKey, SamplingParams
from hyperrl.store import TrajectoryWriter
from hyperrl.train.config import ModelConfig, TrainConfig
from hyperrl.trajectory import Trajectory
from hyperrl.wiring.run_directory import refuse_unwritable
from hyperrl.wiring.saved_model import serve_saved
from hyperrl.wiring.training import make_sampler

__all__ = ["serve_model"]

Announce = Callable[[GatewaySession], None]


def serve_model(
    model: Path,
    params: SamplingParams,
    *,
    settings: GatewaySettings,
    out: Path | None,
    seed: int,
    announce: Announce,
) -> Trajectory:
    """Serve a model directory until Ctrl-C and return, and keep, what was asked of it.

    What was asked is kept where SIGTERM ends it, too.

    Args:
        model: the model's directory.
        params: how actions are drawn.
        settings: where the gateway listens.
        out: an empty or missing folder for the trajectory; ``None`` keeps nothing.
        seed: seed of the run.
        announce: told of the session once it is open.

    Raises:
        ConfigError, ModelError, RunDirectoryError: before anything is served.
    """
    if out is not None:
        refuse_unwritable(out)
        if out.exists() and any(out.iterdir()):
            raise RunDirectoryError(f"{out} is not empty; choose another folder with --out")
    config = TrainConfig(model=ModelConfig(path=model))
    renderer = load_renderer(model)
    sampler = make_sampler(config)
    try:
        serve_saved(config, sampler)
        seat = PolicySeat(sampler=sampler, renderer=renderer, params=params)
        recorder = Recorder(
            key=EpisodeKey((0, 0), 0),
            run_seed=seed,
            seats={"main": seat},
            limits=RolloutLimits(max_context=sampler.context_length),
        )
        metrics: dict[str, float] = {}
        try:
            with suppress(KeyboardInterrupt):  # the way to end it
                asyncio.run(_serve(recorder, settings, announce, metrics))
        finally:  # SIGTERM passes through
            trajectory = _seal(recorder, metrics, seed)
            if out is not None and trajectory.turns:
                digest = renderer.tokenizer.vocabulary_digest
                TrajectoryWriter(out, tokenizer=digest).write_part([trajectory], iteration=0)
    finally:
        sampler.close()
    return trajectory


async def _serve(
    recorder: Recorder, settings: GatewaySettings, announce: Announce, metrics: dict[str, float]
) -> None:
    """Serve a recorder until cancelled or terminated, then note the counts of its session."""
    terminated = asyncio.Event()
    handler = signal.getsignal(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    try:
        async with Gateway(settings) as gateway:
            session = gateway.open(recorder)
            loop.add_signal_handler(signal.SIGTERM, terminated.set)  # and not in the middle of a task
            announce(session)
            try:
                await terminated.wait()
            finally:
                await session.aclose()
                metrics.update(session.metrics)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, handler)
    signal.raise_signal(signal.SIGTERM)


def _seal(recorder: Recorder, metrics: Mapping[str, float], seed: int) -> Trajectory:
    """Return what was recorded, and let nothing be added."""
    recorder.close()
    gathered = Gathered(recorder.forest, Steps())
    return Trajectory.from_columns(
        seal_turns(gathered, []),
        seal_events(gathered),
        run_id="gateway",
        group_id=(0, 0),
        sample_index=0,
        task_id="",
        env_id="",
        seed=seed,
        program="by_hand",
        metrics=compute_metrics(gathered, recorder.roots) | dict(metrics),
    )
