"""Where the time of an iteration goes: seconds by stage, and traces of PyTorch's profiler."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, supported_activities

__all__ = ["IterationProfiler", "StageClock"]


class StageClock:
    """Wall seconds by stage, which are also marked in a trace, as ``hyperrl/<stage>``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add what happens inside to a stage."""
        began = time.perf_counter()
        try:
            with record_function(f"hyperrl/{stage}"):
                yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began

    @property
    def total(self) -> float:
        """Seconds since the clock was made."""
        return time.perf_counter() - self._began

    def metrics(self) -> dict[str, float]:
        """Return ``timing_s/<stage>`` of each stage."""
        return {f"timing_s/{stage}": seconds for stage, seconds in self.seconds.items()}


class IterationProfiler:
    """Writes a trace of each chosen iteration: ``iteration-<n>.json``, for https://ui.perfetto.dev.

    A trace holds the operations of every thread, the sampler's too, and kernels of an accelerator.

    Args:
        folder: where the traces go; made when there is one.
        iterations: numbers of the iterations, from 1.
    """

    def __init__(self, folder: Path, iterations: Sequence[int]) -> None:
        self._folder = folder
        self._iterations = frozenset(iterations)

    @contextmanager
    def __call__(self, iteration: int) -> Iterator[None]:
        """Trace what happens inside, if the iteration is one of those chosen."""
        if iteration not in self._iterations:
            yield
            return
        everything = _ExperimentalConfig(profile_all_threads=True)
        with profile(activities=_activities(), experimental_config=everything) as trace:
            yield
        self._folder.mkdir(parents=True, exist_ok=True)
        trace.export_chrome_trace(str(self._folder / f"iteration-{iteration}.json"))


def _activities() -> list[ProfilerActivity]:
    found: set[ProfilerActivity] = supported_activities()  # type: ignore[no-untyped-call]
    return sorted(found, key=lambda activity: activity.name)
