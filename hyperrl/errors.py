"""The exceptions of hyperrl. Every message says what is wrong, what was expected and what to do.

::

    HyperrlError
    ├── ConfigError             a key or value of a config, option or argument is not acceptable
    ├── DataError               a file or data set is missing, unreadable or lacks what was asked of it
    ├── ModelError              a model directory or tokenizer cannot be used
    │   └── TemplateError       its chat template cannot be rendered or bridged exactly
    ├── MissingExtraError       an optional part is not installed (also an ImportError)
    ├── EnvError                an environment is defined or used wrongly
    │   ├── ToolDefinitionError     a ``@tool`` cannot be offered to a policy
    │   ├── ToolServerError         a server of tools cannot be reached, or is gone
    │   ├── SimulatedUserError      a simulated user did not answer
    │   └── RewardDefinitionError   a ``@reward`` cannot be computed
    ├── TrajectoryError         an invariant of a trajectory does not hold
    ├── StoreError              a trajectory store cannot be read or written
    ├── SamplingError           a policy cannot answer a request
    │   ├── ContextOverflowError    prompt and answer do not fit into the model's context
    │   └── SamplerClosedError      the sampler was closed or its publication did not finish
    ├── EndpointError           an HTTP endpoint refused, failed or answered with something unreadable
    ├── PublicationError        a policy version could not be made live
    ├── InvariantError          a rule that training promises to keep was broken
    ├── NonFiniteError          too many updates in a row had a loss or gradient that was not finite
    ├── LearningError           a run did not show what its config requires
    ├── RunDirectoryError       an output directory cannot be used
    └── RolloutError            episodes could not be played
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Literal

__all__ = [
    "ConfigError",
    "ContextOverflowError",
    "DataError",
    "EndpointError",
    "EnvError",
    "HyperrlError",
    "InvariantError",
    "LearningError",
    "MissingExtraError",
    "ModelError",
    "NonFiniteError",
    "PublicationError",
    "RewardDefinitionError",
    "RolloutError",
    "RunDirectoryError",
    "SamplerClosedError",
    "SamplingError",
    "SimulatedUserError",
    "StoreError",
    "TemplateError",
    "ToolDefinitionError",
    "ToolServerError",
    "TrajectoryError",
    "nearest",
]


class HyperrlError(Exception):
    """Base of every error that hyperrl raises on purpose."""


class ConfigError(HyperrlError):
    """A key or value of a config, option or argument is not acceptable."""


class DataError(HyperrlError):
    """A file or data set is missing, unreadable or lacks what was asked of it."""


class ModelError(HyperrlError):
    """A model directory or tokenizer cannot be used."""


class TemplateError(ModelError):
    """A chat template cannot be rendered or bridged exactly."""


class MissingExtraError(HyperrlError, ImportError):
    """An optional part is not installed; the message names the exact install command."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"{package} is needed for this and is not installed. Run: pip install 'hyperrl[{extra}]'"
        )

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        return type(self), (self.package, self.extra)


class EnvError(HyperrlError):
    """An environment is defined or used wrongly."""


class ToolDefinitionError(EnvError):
    """A ``@tool`` cannot be offered to a policy."""


class ToolServerError(EnvError):
    """A server of tools cannot be reached, or is gone; its episode is a failure, not a score."""


class SimulatedUserError(EnvError):
    """A simulated user did not answer; its episode is a failure, not a score."""


class RewardDefinitionError(EnvError):
    """A ``@reward`` cannot be computed."""


class TrajectoryError(HyperrlError):
    """An invariant of a trajectory does not hold."""


class StoreError(HyperrlError):
    """A trajectory store cannot be read or written."""


class SamplingError(HyperrlError):
    """A policy cannot answer a request."""


class ContextOverflowError(SamplingError):
    """Prompt and answer do not fit into the model's context."""


class SamplerClosedError(SamplingError):
    """The sampler was closed, or no finished publication stands behind it."""


class EndpointError(HyperrlError):
    """An HTTP endpoint refused, failed or answered with something unreadable.

    Attributes:
        kind: ``refused`` (no connection, or it broke), ``timeout``, ``status`` (not a 2xx), or
            ``malformed`` (a 2xx whose body is not what was asked for).
        status: the HTTP status, where there was one.
        url: what was asked.
        retry_after_s: seconds that the server asks to wait before another try; 0 where it does not.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: Literal["refused", "timeout", "status", "malformed"] = "status",
        status: int | None = None,
        url: str = "",
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.kind = kind
        self.status = status
        self.url = url


class PublicationError(HyperrlError):
    """A policy version could not be made live."""


class InvariantError(HyperrlError):
    """A rule that training promises to keep was broken; the run stops rather than learn from it."""


class NonFiniteError(HyperrlError):
    """Too many updates in a row were left out because loss or gradient were not finite.

    Attributes:
        evidence: plain data about each of them: loss, gradient norm, weights and episodes (or conversations)
            at fault. A run keeps it as ``nonfinite.json``, supervised learning beside its model's folder.
    """

    def __init__(self, message: str, *, evidence: tuple[dict[str, Any], ...] = ()) -> None:
        self.evidence = evidence
        super().__init__(message)


class LearningError(HyperrlError):
    """A run did not show what the section ``require`` of its config demands; its files are there."""


class RunDirectoryError(HyperrlError):
    """An output directory cannot be used."""


class RolloutError(HyperrlError):
    """Episodes could not be played."""


def nearest(name: object, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest known name, or an empty string."""
    found = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return f" Did you mean {found[0]!r}?" if found else ""
