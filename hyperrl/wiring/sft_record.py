"""What supervised learning leaves beside its model: metrics of every step, and where they come from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hyperrl.errors import NonFiniteError
from hyperrl.train.trackers import JsonlTracker, MetricsLogger
from hyperrl.wiring.display import Display
from hyperrl.wiring.run_directory import write_atomic

__all__ = ["SFT_EVIDENCE", "SFT_METRICS", "SFT_SUMMARY", "SftRecord"]

SFT_EVIDENCE = "sft-nonfinite.json"
"""Steps that were not finite and have ended learning, one object each, beside the new model's folder."""

SFT_METRICS = "sft-metrics.jsonl"
"""One JSON object a step, in the folder of the new model."""

SFT_SUMMARY = "sft-summary.json"
"""What was learned from and what came of it, in the folder of the new model."""


class SftRecord:
    """Logs and shows the steps of supervised learning.

    A model's folder appears whole, when learning is over; until then, and where it fails, the metrics stand
    beside it as ``<name>.sft-metrics.jsonl``.

    Args:
        model_dir: where the new model will lie.
        display: shows the progress.
    """

    def __init__(self, model_dir: Path, display: Display) -> None:
        self._model_dir = model_dir
        self._display = display
        self._path = model_dir.with_name(f"{model_dir.name}.{SFT_METRICS}")
        self._evidence = model_dir.with_name(f"{model_dir.name}.{SFT_EVIDENCE}")
        for path in (self._path, self._evidence):
            path.unlink(missing_ok=True)
        self._logger = MetricsLogger([JsonlTracker(self._path)])
        self._last: dict[str, float] = {}
        self._validated: list[float] = []
        self._tokens = 0.0
        self._steps = self._skipped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.close()

    def on_step(self, finished: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step, and show them."""
        self._logger.log(finished, metrics)
        self._last |= metrics
        self._steps = finished
        self._tokens += metrics.get("sft/tokens", 0.0)
        self._skipped += int(metrics.get("sft/skipped", 0.0))
        if (held_out := metrics.get("sft/validation_loss")) is not None:
            self._validated.append(held_out)
            self._display.note(f"step {finished}: held-out loss {held_out:.4f}")
        if finished:
            self._display.advance(1, f"loss {metrics['sft/loss']:.3f}, lr {metrics['sft/lr']:.2g}")

    @contextmanager
    def evidence_kept(self) -> Iterator[None]:
        """Write down what steps that were not finite were made of, and let the error say where."""
        try:
            yield
        except NonFiniteError as error:
            text = json.dumps(list(error.evidence), indent=2, allow_nan=False)
            write_atomic(self._evidence, text + "\n")
            raise NonFiniteError(
                f"{error}. Evidence: {self._evidence}; metrics of every step: {self._path}",
                evidence=error.evidence,
            ) from error

    def finish(self, source: Mapping[str, Any]) -> None:
        """Move the metrics into the model's folder and write the summary beside them.

        Args:
            source: what was learned from.
        """
        self._logger.close()
        self._path.replace(self._model_dir / SFT_METRICS)
        loss = self._last.get("sft/loss", math.nan)
        summary = {
            **source,
            "steps": self._steps,
            "skipped": self._skipped,
            "action_tokens": int(self._tokens),
            "loss": loss if math.isfinite(loss) else None,
            "validation_loss_before": self._validated[0] if self._validated else None,
            "validation_loss_after": self._validated[-1] if self._validated else None,
        }
        text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
        write_atomic(self._model_dir / SFT_SUMMARY, text + "\n")
