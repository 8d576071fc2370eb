"""Choosing the strongest sandbox that is there."""

from __future__ import annotations

from typing import Literal

from hyperrl.envs.sandbox.base import Sandbox, SandboxLimits, check_level, reaches
from hyperrl.envs.sandbox.bwrap import BubblewrapSandbox, why_not_isolated
from hyperrl.envs.sandbox.local import LocalSandbox
from hyperrl.envs.sandbox.monty import MontySandbox
from hyperrl.errors import ConfigError, nearest

__all__ = ["make_sandbox"]

_INTERPRETERS = ("cpython", "monty")


def make_sandbox(
    minimum: str = "limited",
    *,
    limits: SandboxLimits | None = None,
    interpreter: Literal["cpython", "monty"] = "cpython",
) -> Sandbox:
    """Make the strongest sandbox that works here.

    Args:
        minimum: the weakest level to accept: ``none``, ``limited`` or ``isolated``. What is ``limited``
            on this machine may or may not hold signals; ask ``contains_signals`` of what is returned.
        limits: what one run may use; None: the defaults of :class:`SandboxLimits`.
        interpreter: ``cpython`` for all of Python; ``monty`` for a subset, quick and isolated anywhere.

    Raises:
        ConfigError: there is no such level or interpreter, or nothing here reaches ``minimum``.
        MissingExtraError: ``monty`` was asked for and pydantic-monty is not installed.
    """
    check_level(minimum)
    if interpreter == "monty":
        return MontySandbox(limits)
    if interpreter != "cpython":
        raise ConfigError(
            f"there is no interpreter {interpreter!r}; there are cpython and monty."
            f"{nearest(interpreter, _INTERPRETERS)}"
        )
    reason = why_not_isolated()
    if reason is None:
        return BubblewrapSandbox(limits)
    if reaches(LocalSandbox.level, minimum):
        return LocalSandbox(limits)
    raise ConfigError(
        f"this asks for a sandbox of level {minimum!r}, and here only 'limited' can be had: {reason}."
        " For a subset of Python, interpreter='monty' is isolated anywhere: pip install 'hyperrl[sandbox]'"
    )
