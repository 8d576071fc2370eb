"""How long an episode may get, and how a program learns that it was cut."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hyperrl.errors import ConfigError
from hyperrl.sampling import SamplingParams
from hyperrl.trajectory import TruncationReason, TurnUse

__all__ = ["Budget", "LimitReached", "RolloutLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLimits:
    """Limits of one episode; ``None`` is no limit.

    Attributes:
        max_turns: most ``train`` turns, over all seats. The environment's own limit
            (``spec.max_episode_steps``) holds where it is lower.
        max_tokens: most sampled tokens of one turn, where that is lower than what the seat samples.
        max_episode_tokens: most tokens read and sampled, over all turns.
        max_context: most tokens of a prompt and its answer together.
        wall_clock_s: most seconds from ``reset`` to the end.

    Raises:
        ConfigError: a limit is not positive.
    """

    max_turns: int | None = None
    max_tokens: int | None = None
    max_episode_tokens: int | None = None
    max_context: int | None = None
    wall_clock_s: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and not value > 0:
                raise ConfigError(f"{field.name} must be positive, or None for no limit; got {value}")

    @property
    def bounds_requests(self) -> bool:
        """Whether turns or tokens of an episode are limited."""
        return not (self.max_turns is self.max_episode_tokens is self.max_context is None)

    def with_max_turns(self, turns: int | None) -> RolloutLimits:
        """Return limits that also hold ``turns``, such as an environment's own."""
        if turns is None or (self.max_turns is not None and self.max_turns <= turns):
            return self
        return dataclasses.replace(self, max_turns=turns)


class LimitReached(Exception):  # noqa: N818  (not an error: it says that the episode is over)
    """Raised by ``respond`` where answering would exceed a limit: the episode is over.

    A program lets it pass, or cleans up and returns; either way the episode counts as truncated.
    """

    def __init__(self, reason: TruncationReason, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class Budget:
    """What is left of an episode's limits.

    Attributes:
        limited: there is a limit of turns or tokens; else nothing has to be admitted or counted.
        reached: why the episode was cut, once a request was refused.
        bound: which limit gave the ``max_tokens`` of the request that was admitted last.
    """

    __slots__ = ("_limits", "_tokens", "_turns", "bound", "limited", "reached")

    def __init__(self, limits: RolloutLimits) -> None:
        self._limits = limits
        self.limited = limits.bounds_requests
        self._turns = 0
        self._tokens = 0
        self.reached: TruncationReason | None = None
        self.bound = TruncationReason.MAX_TOKENS

    def admit_turn(self, use: TurnUse) -> None:
        """Count one request.

        Raises:
            LimitReached: it would be a turn too many.
        """
        if use != "train":
            return
        limit = self._limits.max_turns
        if limit is not None and self._turns >= limit:
            raise self.refuse(TruncationReason.MAX_TURNS, f"the episode has had its {limit} turns")
        self._turns += 1

    def admit_tokens(self, prompt: int, new: int, params: SamplingParams) -> SamplingParams:
        """Return ``params`` with ``max_tokens`` cut to what context and episode leave.

        Requests that are answered at the same time do not see each other's answers in the count.

        Args:
            prompt: tokens of the whole prompt.
            new: those of them that were read since the parent's last token.
            params: how the seat samples.

        Raises:
            LimitReached: not even one token is left.
        """
        limits = self._limits
        room = params.max_tokens
        self.bound = TruncationReason.MAX_TOKENS
        if limits.max_context is not None and limits.max_context - prompt < room:
            self.bound, room = TruncationReason.CONTEXT, limits.max_context - prompt
            if room < 1:
                text = f"a prompt of {prompt} tokens leaves no room in a context of {limits.max_context}"
                raise self.refuse(TruncationReason.CONTEXT, text)
        self._tokens += new
        if limits.max_episode_tokens is not None and limits.max_episode_tokens - self._tokens < room:
            self.bound, room = TruncationReason.MAX_TOKENS, limits.max_episode_tokens - self._tokens
            if room < 1:
                most = limits.max_episode_tokens
                text = f"the episode has had its {most} tokens"
                if self._tokens == prompt:
                    text = f"a first prompt of {prompt} tokens leaves none of the {most} of an episode"
                raise self.refuse(TruncationReason.MAX_TOKENS, text)
        return params if room == params.max_tokens else dataclasses.replace(params, max_tokens=room)

    def spend(self, tokens: int) -> None:
        """Count sampled tokens."""
        self._tokens += tokens

    def refuse(self, reason: TruncationReason, message: str) -> LimitReached:
        """Return the exception that ends the episode; the first reason stays."""
        self.reached = self.reached or reason
        return LimitReached(reason, message)
