"""Cutting the tensors of a version into bounded chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from hyperrl.errors import ConfigError

__all__ = ["make_buckets"]


def make_buckets(named_tensors: Mapping[str, Tensor], bucket_bytes: int) -> Iterator[dict[str, Tensor]]:
    """Yield ``named_tensors`` in order, in buckets of at most ``bucket_bytes``.

    A tensor is never cut: one that is larger than ``bucket_bytes`` has a bucket of its own.

    Raises:
        ConfigError: ``bucket_bytes`` is not positive.
    """
    if bucket_bytes < 1:
        raise ConfigError(f"bucket_bytes must be at least 1, got {bucket_bytes}")
    bucket: dict[str, Tensor] = {}
    filled = 0
    for name, tensor in named_tensors.items():
        size = tensor.numel() * tensor.element_size()
        if bucket and filled + size > bucket_bytes:
            yield bucket
            bucket, filled = {}, 0
        bucket[name] = tensor
        filled += size
    if bucket:
        yield bucket
