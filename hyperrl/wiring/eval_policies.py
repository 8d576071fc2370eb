"""Who is evaluated: a scripted player, a model directory, or a model behind an endpoint.

A choice says what it is (:meth:`PolicyChoice.describe`, kept with the results) and opens a seat. Only a
model directory needs torch, which is imported when it is opened.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from hyperrl.agents.endpoint import EndpointPolicy
from hyperrl.agents.episode import reset_seed
from hyperrl.agents.recorder import PolicySeat, RemoteSeat, Seat
from hyperrl.agents.scripted import FunctionPolicy, ScriptedPolicy
from hyperrl.envs.baseline import ScriptedPlayer, find_baseline
from hyperrl.envs.endpoint import Endpoint
from hyperrl.envs.registration import make_env
from hyperrl.errors import ConfigError, nearest
from hyperrl.sampling import EpisodeKey, SamplingParams
from hyperrl.train.config import TrainConfig
from hyperrl.trajectory import GroupId
from hyperrl.wiring.gold import GoldScript

__all__ = ["EndpointChoice", "EvalJob", "ModelChoice", "OpenSeat", "PolicyChoice", "ScriptedChoice"]

_SCRIPTS = ("gold", "baseline")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalJob:
    """What is to be played.

    Attributes:
        config: environment, limits, model.
        params: how actions are drawn.
        picks: task index by group id.
        run_seed: seed of resets and requests.
        scores_groups: rewards compare the episodes of a task, so that a task is played whole or not at all.
    """

    config: TrainConfig
    params: SamplingParams
    picks: Mapping[GroupId, int]
    run_seed: int
    scores_groups: bool = False

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment, the split among them."""
        return {**self.config.env.kwargs, "split": self.config.evaluation.split}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSeat:
    """A seat that can be played.

    Attributes:
        seat: who answers.
        context_length: most tokens of a prompt and its answer, where we count them.
        aclose: to be awaited in the loop of the episodes, when they are over.
        tokenizer: digest of the vocabulary that token ids are of; empty where there are none.
    """

    seat: Seat
    context_length: int | None = None
    aclose: Callable[[], Awaitable[None]] | None = None
    tokenizer: str = ""


class PolicyChoice(Protocol):
    """Who is evaluated."""

    def describe(self) -> dict[str, Any]:
        """Return what makes results comparable, as JSON values: what it is, but no key."""
        ...

    def open(self, job: EvalJob) -> AbstractContextManager[OpenSeat]:
        """Open the seat for a job.

        Raises:
            ConfigError, DataError, ModelError: it cannot play the job.
        """
        ...


@dataclass(frozen=True, slots=True)
class ScriptedChoice:
    """A scripted player: ``gold``, ``baseline`` (both the environment's own), or ``module:function``."""

    name: str

    def describe(self) -> dict[str, Any]:
        return {"kind": "scripted", "name": self.name}

    @contextmanager
    def open(self, job: EvalJob) -> Iterator[OpenSeat]:
        env = make_env(job.config.env.id, **job.env_kwargs)
        try:
            if self.name == "gold":
                gold = GoldScript(env, dict(job.picks), lambda group_id: reset_seed(job.run_seed, group_id))
                gold.actions(next(iter(job.picks)))  # says at once that there is none
                yield OpenSeat(seat=RemoteSeat(policy=lambda key: ScriptedPolicy(gold.actions(key.group_id))))
                return
            player = find_baseline(env) if self.name == "baseline" else _load_player(self.name)

            def open_player(key: EpisodeKey) -> FunctionPolicy:
                return FunctionPolicy(player, run_seed=job.run_seed, key=key)

            yield OpenSeat(seat=RemoteSeat(policy=open_player))
        finally:
            env.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointChoice:
    """A model behind an OpenAI-compatible endpoint.

    Attributes:
        base_url: where the API begins, such as ``http://127.0.0.1:8000/v1``.
        model: the name that it is served under.
        api_key_env: environment variable that holds the key; ``None`` sends none.
        timeout_s: seconds that one try may take.
        retries: tries after the first.
        send_seed: send a seed with every request, for servers that take one.
    """

    base_url: str
    model: str
    api_key_env: str | None = None
    timeout_s: float = 120.0
    retries: int = 4
    send_seed: bool = False

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "endpoint",
            "base_url": self.base_url,
            "model": self.model,
            "send_seed": self.send_seed,
        }

    @contextmanager
    def open(self, job: EvalJob) -> Iterator[OpenSeat]:
        endpoint = Endpoint(
            self.base_url,
            api_key=self.api_key_env,
            timeout_s=self.timeout_s,
            retries=self.retries,
            max_concurrent=job.config.rollout.max_concurrent or 32,
        )
        policy = EndpointPolicy(endpoint, self.model, job.params)
        seat = RemoteSeat(policy=policy)
        if self.send_seed:
            seat = RemoteSeat(policy=lambda key: policy.for_episode(key, job.run_seed))
        yield OpenSeat(seat=seat, aclose=endpoint.aclose)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model directory ``model.path`` of the config."""

    path: Path
    dtype: str

    def describe(self) -> dict[str, Any]:
        return {"kind": "model", "path": str(self.path), "dtype": self.dtype, "digest": _digest(self.path)}

    @contextmanager
    def open(self, job: EvalJob) -> Iterator[OpenSeat]:
        from hyperrl.wiring.preflight import check_playable  # noqa: PLC0415  (needs torch)
        from hyperrl.wiring.saved_model import serve_saved  # noqa: PLC0415  (needs torch)
        from hyperrl.wiring.training import make_sampler  # noqa: PLC0415  (needs torch)

        checked = check_playable(job.config, model=self.path, split=job.config.evaluation.split)
        sampler = make_sampler(job.config)
        try:
            serve_saved(job.config, sampler)
            seat = PolicySeat(sampler=sampler, renderer=checked.renderer, params=job.params)
            digest = checked.renderer.tokenizer.vocabulary_digest
            yield OpenSeat(seat=seat, context_length=sampler.context_length, tokenizer=digest)
        finally:
            sampler.close()


def _load_player(name: str) -> ScriptedPlayer:
    """Import ``module:function``. Raises ConfigError."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise ConfigError(
            f"unknown policy {name!r}: expected one of {', '.join(_SCRIPTS)}, or 'module:function' for a"
            f" function of messages and a generator that returns text.{nearest(name, _SCRIPTS)}"
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"policy {name!r}: module {module_name!r} cannot be imported ({error})") from error
    found = getattr(module, attribute, None)
    if not callable(found):
        known = [item for item, value in vars(module).items() if callable(value)]
        it_is = "" if found is None else f": it is of the type {type(found).__name__}"
        hint = nearest(attribute, known)
        raise ConfigError(f"policy {name!r}: {module_name!r} has no function {attribute!r}{it_is}.{hint}")
    return cast(ScriptedPlayer, found)


def _digest(directory: Path) -> str:
    """Return a digest of a model's files: names, sizes, and the first and last megabyte of each."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(directory.glob("*")):
        if path.suffix in (".safetensors", ".json", ".jinja") and path.is_file():
            size = path.stat().st_size
            digest.update(f"{path.name}|{size}|".encode())
            with path.open("rb") as file:
                digest.update(file.read(2**20))
                file.seek(max(0, size - 2**20))
                digest.update(file.read(2**20))
    return digest.hexdigest()
