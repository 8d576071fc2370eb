from __future__ import annotations

from types import SimpleNamespace

import pytest

from hyperrl.envs.injection import EPISODE_NAMES, inject
from hyperrl.errors import EnvError

EPISODE = SimpleNamespace(
    task="T", answer="A", turn=3, rng="R", options="O", action="X", messages=[], stop_reason="S"
)


def _nothing():
    return ()


def _only_self(self):
    return (self,)


def _one(self, task):
    return self, task


def _two(self, answer, task):
    return self, answer, task


def _without_self(turn):
    return (turn,)


def _two_without_self(turn, rng):
    return turn, rng


def _keyword(self, *, turn, task):
    return self, turn, task


def _with_default(self, strict=True, *, task="unset"):
    return self, strict, task


def _keyword_without_self(*, action):
    return (action,)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (_nothing, ()),
        (_only_self, ("E",)),
        (_one, ("E", "T")),
        (_two, ("E", "A", "T")),
        (_without_self, (3,)),
        (_two_without_self, (3, "R")),
        (_keyword, ("E", 3, "T")),
        (_with_default, ("E", True, "T")),
        (_keyword_without_self, ("X",)),
    ],
)
def test_arguments_arrive_by_name(function, given):
    injected = inject(function, EPISODE_NAMES, where="f")
    assert injected.call("E", EPISODE) == given
    assert not injected.is_async


def _star(self, *args):
    return args


def _stars(self, **kwargs):
    return kwargs


def _unknown(self, taks):
    return taks


@pytest.mark.parametrize(
    ("function", "said"),
    [(_star, r"\*args"), (_stars, r"\*\*kwargs"), (_unknown, "'taks'.*Did you mean 'task'")],
)
def test_what_cannot_be_given_is_refused(function, said):
    with pytest.raises(EnvError, match=said):
        inject(function, EPISODE_NAMES, where="f")


def test_async_functions_are_known():
    async def f(task):
        return task

    assert inject(f, EPISODE_NAMES, where="f").is_async
