"""Checks of environments that need both sides: what `hyperrl check` looks at."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hyperrl.envs.author_code import describe_raised
from hyperrl.envs.checker import Check, CheckReport, SkippedError, check_env_contract, look
from hyperrl.envs.registration import make_env
from hyperrl.errors import MissingExtraError

__all__ = ["check_environment", "check_environments"]


def check_environment(env_id: str, kwargs: Mapping[str, Any] | None = None) -> CheckReport:
    """Check an environment, and the way of its texts through a chat template and the parser.

    Args:
        env_id: a registered id.
        kwargs: for its constructor.

    Raises:
        ConfigError: there is no such environment.
        EnvError: it is not a :class:`~hyperrl.envs.TextEnv`.
    """
    report = check_env_contract(env_id, **(kwargs or {}))
    if len(report.checks) == 1:
        return report  # no episode begins
    trip = look("prompt and parser round trip", lambda: _round_trip(env_id, kwargs or {}))
    return dataclasses.replace(report, checks=(*report.checks, trip))


def check_environments(env_ids: Iterable[str]) -> Iterator[CheckReport]:
    """Check several environments; one that cannot be made is a failing (or skipped) check, no exception."""
    for env_id in env_ids:
        yield _check_or_explain(env_id)


def _check_or_explain(env_id: str) -> CheckReport:
    try:
        return check_environment(env_id)
    except MissingExtraError as error:
        check = Check(name="can be made", status="skip", detail=str(error))
    except Exception as error:  # noqa: BLE001  # a stranger's constructor must not end the check of others
        check = Check(name="can be made", status="fail", detail=describe_raised(error))
    return CheckReport(env_id=env_id, checks=(check,))


def _round_trip(env_id: str, kwargs: Mapping[str, Any]) -> str:
    try:
        from hyperrl.agents.round_trip import check_round_trip  # noqa: PLC0415  # of the extra `agents`
    except MissingExtraError as error:
        raise SkippedError(str(error)) from error
    env = make_env(env_id, **kwargs)
    try:
        return check_round_trip(env)
    finally:
        env.close()
