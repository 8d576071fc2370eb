"""The space of texts that observations and actions live in."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Text
from gymnasium.vector.utils import create_shared_memory

__all__ = ["Unicode"]

_SAMPLE_LENGTH = 48
_BLOCKS: tuple[tuple[int, int], ...] = (
    (0x20, 0x7E),  # printable ASCII
    (0x00, 0x1F),  # control characters
    (0xA0, 0x24F),  # Latin
    (0x300, 0x36F),  # combining marks
    (0x5D0, 0x6FF),  # right to left
    (0x2000, 0x206F),  # spaces, direction marks
    (0x4E00, 0x9FFF),  # Han
    (0x1F300, 0x1FAFF),  # pictographs, beyond the first plane
    (0xE000, 0xE0FF),  # private use
    (0x10FF00, 0x10FFFF),  # the end of Unicode
)


class Unicode(Text):
    """Every ``str`` of at most ``max_length`` characters, the empty one included.

    ``gymnasium.spaces.Text`` lists the characters it allows and looks at each one of a text. This
    space allows all of them, lone surrogates too, so membership costs nothing but a length.

    Args:
        max_length: most characters of a text.
        seed: seed of :meth:`sample`.
    """

    def __init__(self, max_length: int = 1_000_000, *, seed: int | np.random.Generator | None = None) -> None:
        # One listed character is enough: gymnasium reads it to make empty texts of vector environments.
        super().__init__(max_length, min_length=0, charset=" ", seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a ``str`` that is short enough."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a short text of odd characters: controls, combining marks, right to left, astral.

        Lone surrogates are members of the space but are never drawn, since few programs can print one.

        Raises:
            ValueError: a mask or a probability was given; there is no list of characters to mask.
        """
        if mask is not None or probability is not None:
            raise ValueError("Unicode.sample takes no mask and no probability: it lists no characters")
        length = int(self.np_random.integers(0, min(_SAMPLE_LENGTH, self.max_length) + 1))
        blocks = self.np_random.integers(0, len(_BLOCKS), size=length)
        places = self.np_random.random(size=length)
        return "".join(map(_character, blocks, places))

    @property
    def is_np_flattenable(self) -> bool:
        """Never: a text has no fixed size."""
        return False

    def __repr__(self) -> str:
        return f"Unicode(max_length={self.max_length})"

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Unicode) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]  # as every gymnasium space: mutable by seed


def _character(block: int, place: float) -> str:
    first, last = _BLOCKS[block]
    return chr(first + int(place * (last - first + 1)))


def _refuse_shared_memory(space: Unicode, *_: Any, **__: Any) -> Any:
    raise CustomSpaceError(
        f"{space} has no fixed size, so observations cannot live in shared memory."
        " Make the vector environment with shared_memory=False"
        ' (gymnasium.make_vec(..., vector_kwargs={"shared_memory": False})).'
    )


create_shared_memory.register(Unicode, _refuse_shared_memory)
