"""What a policy version contains: names, shapes, number formats and digests of its tensors."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from hyperrl.errors import PublicationError

__all__ = ["Manifest", "TensorEntry", "make_manifest", "tensor_digest", "untied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of a version.

    Attributes:
        name: its parameter name.
        shape: its sizes.
        dtype: its number format, such as ``float32``.
        digest: of its bytes in row-major order; see :func:`tensor_digest`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: str

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return math.prod(self.shape) * dtype.itemsize


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The list of what policy ``version`` contains; a tied tensor is listed once."""

    version: int
    tensors: tuple[TensorEntry, ...]

    def __post_init__(self) -> None:
        if self.version < 0:
            raise PublicationError(f"policy versions start at 0, got {self.version}")
        names = [entry.name for entry in self.tensors]
        if len(set(names)) != len(names):
            raise PublicationError(f"a manifest lists each tensor once, got {names}")

    @cached_property
    def digest(self) -> str:
        """Digest of everything listed except the version: equal weights have equal digests."""
        text = "\n".join(
            f"{entry.name}|{entry.shape}|{entry.dtype}|{entry.digest}"
            for entry in sorted(self.tensors, key=lambda entry: entry.name)
        )
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @cached_property
    def by_name(self) -> Mapping[str, TensorEntry]:
        """The entries by their names."""
        return {entry.name: entry for entry in self.tensors}


def make_manifest(version: int, named_tensors: Mapping[str, Tensor]) -> Manifest:
    """List ``named_tensors`` as policy ``version``."""
    return Manifest(
        version=version,
        tensors=tuple(
            TensorEntry(
                name=name,
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                digest=tensor_digest(tensor),
            )
            for name, tensor in untied(named_tensors).items()
        ),
    )


def untied(named_tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``named_tensors`` without later names of the same memory, such as a tied output embedding."""
    seen: set[tuple[object, ...]] = set()
    kept: dict[str, Tensor] = {}
    for name, tensor in named_tensors.items():
        memory = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and memory in seen:
            continue
        seen.add(memory)
        kept[name] = tensor
    return kept


def tensor_digest(tensor: Tensor) -> str:
    """Return the 128-bit BLAKE2b digest of the tensor's bytes in row-major order, as hexadecimal."""
    plain = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(plain.numpy().data, digest_size=16).hexdigest()
