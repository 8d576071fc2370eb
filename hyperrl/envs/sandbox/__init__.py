"""Sandboxes: where code that nobody has read may run. docs/sandboxes.md says what each level stops."""

from hyperrl.envs.sandbox.base import (
    LEVELS,
    Sandbox,
    SandboxLevel,
    SandboxLimits,
    SandboxResult,
    reaches,
)
from hyperrl.envs.sandbox.bwrap import BubblewrapSandbox
from hyperrl.envs.sandbox.choice import make_sandbox
from hyperrl.envs.sandbox.confinement import Confinement
from hyperrl.envs.sandbox.local import LocalSandbox
from hyperrl.envs.sandbox.monty import MontySandbox, MontySession

__all__ = [
    "LEVELS",
    "BubblewrapSandbox",
    "Confinement",
    "LocalSandbox",
    "MontySandbox",
    "MontySession",
    "Sandbox",
    "SandboxLevel",
    "SandboxLimits",
    "SandboxResult",
    "make_sandbox",
    "reaches",
]
