"""The sampler in this process: a whole copy of the policy, decoded with PyTorch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import torch

from hyperrl.errors import ConfigError, ContextOverflowError, ModelError, PublicationError, SamplingError
from hyperrl.sampling import Completion, EpisodeKey, RequestKey, SamplingParams
from hyperrl.train.device import memory_exhausted
from hyperrl.train.models import build_model, install_weights, load_model_info, named_weights
from hyperrl.train.publication.manifest import Manifest
from hyperrl.train.publication.staging import StagedWeights
from hyperrl.train.samplers.admission import AdmissionMode, Request, make_admission
from hyperrl.train.samplers.batch import DecodeBatch, Ended
from hyperrl.train.samplers.decode_thread import DecodeThread
from hyperrl.train.samplers.decoder import make_decoder

__all__ = ["TorchSampler"]

_SETTLING_TURNS = 2
"""Turns of the event loop between an event and the decision about the next wave: what the same
moment brings about (several requests of one episode, an episode that follows one that ends) counts."""


class TorchSampler:
    """Draws actions with its own, unsharded copy of the policy. No call issues a collective.

    The weights come by publication only; before the first commit nothing is sampled. All
    computation happens on one thread of its own, so the event loop never waits for it.
    ``generate`` may be called from any number of tasks of one event loop; publication and ``close``
    from any thread. Implements ``Sampler``, ``Attendance`` and ``PublishTarget``.

    With ``admission="waves"`` the same requests give the same bits in whatever order they arrive.
    For that every episode of a batch must enter :meth:`attend` before the first one asks, and an
    episode that takes another's place before that one leaves, or at once when it does.

    Args:
        model_dir: a model directory; only its config is read.
        dtype: number format of weights and computation; the learner's.
        device: where it computes.
        attention: ``eager`` or ``sdpa``.
        max_batch: most rows decoded together.
        admission: ``waves`` or ``immediate``.

    Raises:
        ModelError: the directory does not describe a usable model, or a copy does not fit into memory.
        ConfigError: another argument is not acceptable.
    """

    def __init__(
        self,
        model_dir: Path | str,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        attention: str = "eager",
        max_batch: int = 64,
        admission: AdmissionMode = "waves",
    ) -> None:
        if max_batch < 1:
            raise ConfigError(f"max_batch must be at least 1, got {max_batch}")
        waiting = make_admission(admission)
        info = load_model_info(model_dir)
        self._context_length = info.context_length
        self._vocab_size = info.vocab_size
        self._model = _build(Path(model_dir), dtype, device or torch.device("cpu"), attention)
        self._served: Manifest | None = None
        self._staged: StagedWeights | None = None
        self._spare: dict[str, torch.Tensor] | None = None
        batch = DecodeBatch(make_decoder(self._model), capacity=max_batch)
        self._thread = DecodeThread(batch, waiting, self._deliver)

    @property
    def policy_version(self) -> int:
        return self._thread.version

    @property
    def digest(self) -> str | None:
        """Digest of the weights that are served; ``None`` before the first publication."""
        return self._served.digest if self._served else None

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and action together."""
        return self._context_length

    @property
    def decoding(self) -> int:
        """Rows that are being decoded now."""
        return self._thread.decoding

    async def generate(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        seed: int,
        request_id: RequestKey,
    ) -> Completion:
        """Sample one action after ``prompt_ids``; see ``Sampler.generate``.

        An action that reaches ``params.max_tokens`` or the end of the context stops with ``length``.

        Raises:
            ContextOverflowError: the prompt leaves no room for a token.
            SamplerClosedError: nothing published, or closed before the answer was complete.
            SamplingError: the prompt is empty or has unknown ids, or decoding failed.
        """
        prompt = [int(token) for token in prompt_ids]
        self._check_prompt(prompt, request_id)
        loop = asyncio.get_running_loop()
        request = Request(
            key=request_id,
            prompt_ids=prompt,
            params=params,
            seed=seed,
            limit=min(params.max_tokens, self._context_length - len(prompt)),
            future=loop.create_future(),
        )
        self._thread.submit(request)
        self._settle_soon(loop)
        try:
            return await request.future
        except asyncio.CancelledError:
            self._thread.cancel(request)
            self._settle_soon(loop)
            raise

    def attend(self, episode: EpisodeKey) -> AbstractAsyncContextManager[None]:
        """While entered, the episode is live: a wave waits for its request or for its end."""
        return self._attend(episode)

    @contextlib.asynccontextmanager
    async def _attend(self, episode: EpisodeKey) -> AsyncIterator[None]:
        self._thread.enter(episode)
        try:
            yield
        finally:
            self._thread.leave(episode)
            self._settle_soon(asyncio.get_running_loop())

    def begin(self, manifest: Manifest) -> None:
        """Get ready for ``manifest``.

        Raises:
            PublicationError: another publication is under way, the manifest does not fit the model,
                or its version is older than the one served, or equal with another digest.
        """
        if self._staged is not None:
            raise PublicationError(
                f"policy version {self._staged.manifest.version} is still being staged;"
                " commit or abort it first"
            )
        self._check_version(manifest)
        self._staged = StagedWeights(manifest, named_weights(self._model), self._spare)
        self._spare = None

    def stage(self, bucket: Mapping[str, Any]) -> None:
        self._expect_staged("stage").take(bucket)

    def verify(self) -> None:
        self._expect_staged("verify").verify()

    def commit(self) -> None:
        """Serve the staged version from the next token on; rows on the way are read again under it.

        Raises:
            PublicationError: nothing staged, or :meth:`verify` has not passed.
        """
        staged = self._expect_staged("commit")
        if not staged.verified:
            raise PublicationError(
                f"policy version {staged.manifest.version} was not verified; call verify before commit"
            )

        self._thread.install(staged.manifest.version, lambda: install_weights(self._model, staged.memory))
        self._served, self._spare, self._staged = staged.manifest, staged.memory, None

    def abort(self) -> None:
        if self._staged is not None:
            self._spare, self._staged = self._staged.memory, None

    def pause(self) -> None:
        self._thread.pause()

    def resume(self) -> None:
        self._thread.resume()

    async def aclose(self) -> None:
        """Fail whatever waits or decodes with SamplerClosedError and end the thread."""
        await asyncio.to_thread(self._thread.close)

    def close(self) -> None:
        """Like :meth:`aclose`, for code outside the event loop."""
        self._thread.close()

    def _check_prompt(self, prompt: Sequence[int], key: RequestKey) -> None:
        if not prompt:
            raise SamplingError(f"request {key}: the prompt has no token")
        unknown = next((token for token in prompt if not 0 <= token < self._vocab_size), None)
        if unknown is not None:
            raise SamplingError(
                f"request {key}: token id {unknown} is outside the model's vocabulary of"
                f" {self._vocab_size}. The tokenizer must belong to the model."
            )
        if len(prompt) >= self._context_length:
            raise ContextOverflowError(
                f"request {key}: a prompt of {len(prompt)} tokens leaves no room in a context of"
                f" {self._context_length}. Lower the token limits of the rollout."
            )

    def _check_version(self, manifest: Manifest) -> None:
        served = self._served
        if served is None or manifest.version > served.version:
            return
        if manifest.version < served.version:
            raise PublicationError(
                f"version {manifest.version} is older than version {served.version}, which is served"
            )
        if manifest.digest != served.digest:
            raise PublicationError(
                f"version {manifest.version} is served with digest {served.digest} and cannot be replaced"
                f" by other weights ({manifest.digest}); publish them under a higher version"
            )

    def _expect_staged(self, action: str) -> StagedWeights:
        if self._staged is None:
            raise PublicationError(f"cannot {action}: no publication was begun")
        return self._staged

    def _deliver(self, ended: list[Ended]) -> None:
        """On the decode thread: hand results to the event loop that waits for them."""
        for loop in {end.request.future.get_loop() for end in ended}:
            own = [end for end in ended if end.request.future.get_loop() is loop]
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(self._finish, own, loop)

    def _finish(self, ended: list[Ended], loop: asyncio.AbstractEventLoop) -> None:
        for end in ended:
            future = end.request.future
            if future.done():
                continue
            if isinstance(end.result, Completion):
                future.set_result(end.result)
            elif end.result is not None:
                future.set_exception(end.result)
        self._settle_soon(loop)

    def _settle_soon(self, loop: asyncio.AbstractEventLoop, turns: int = _SETTLING_TURNS) -> None:
        if turns == 0:
            self._thread.settle()
        else:
            loop.call_soon(self._settle_soon, loop, turns - 1)


def _build(model_dir: Path, dtype: torch.dtype, device: torch.device, attention: str) -> torch.nn.Module:
    try:
        return build_model(model_dir, dtype=dtype, device=device, attention=attention)
    except (RuntimeError, MemoryError) as error:
        if not memory_exhausted(error):
            raise
        raise ModelError(
            f"a whole copy of the model in {str(model_dir)!r} does not fit on {device}."
            " Use a smaller model or dtype; this sampler shards nothing, larger models need vLLM."
        ) from error
