"""A second set of weights that fills up while the first one is served."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from hyperrl.errors import PublicationError, nearest
from hyperrl.train.publication.manifest import Manifest, tensor_digest

__all__ = ["StagedWeights"]


class StagedWeights:
    """Receives the tensors that a manifest lists and checks them; serves nothing.

    Args:
        manifest: what will come.
        served: the tensors that the new ones will replace; they give shapes, dtypes and device.
        memory: tensors to fill, as ``served`` in number and form; allocated if not given.

    Raises:
        PublicationError: the manifest does not list exactly what is served.
    """

    def __init__(
        self,
        manifest: Manifest,
        served: Mapping[str, Tensor],
        memory: Mapping[str, Tensor] | None = None,
    ) -> None:
        _check_listing(manifest, served)
        self.manifest = manifest
        self._verified = False
        self._missing = set(served)
        if memory is None:
            # Even under inference mode these must be ordinary tensors: a later caller writes to them.
            with torch.inference_mode(mode=False):
                memory = {name: torch.empty_like(tensor) for name, tensor in served.items()}
        self._memory = dict(memory)

    @property
    def verified(self) -> bool:
        """Whether everything is here and equal to what the manifest promises."""
        return self._verified

    @property
    def memory(self) -> dict[str, Tensor]:
        """The tensors, in whatever state they are."""
        return self._memory

    def take(self, bucket: Mapping[str, Tensor]) -> None:
        """Copy the tensors of ``bucket``.

        Raises:
            PublicationError: a tensor is not listed, or its shape or dtype differs from the listing.
        """
        self._verified = False
        for name, tensor in bucket.items():
            if name not in self._memory:
                raise PublicationError(
                    f"policy version {self.manifest.version}: {name!r} was staged but is not in the"
                    f" manifest.{nearest(name, self._memory)}"
                )
            target = self._memory[name]
            if tensor.shape != target.shape or tensor.dtype != target.dtype:
                raise PublicationError(
                    f"policy version {self.manifest.version}: {name!r} was staged as {_form(tensor)},"
                    f" but the manifest lists {_form(target)}"
                )
            with torch.no_grad():
                target.copy_(tensor)
            self._missing.discard(name)

    def verify(self) -> None:
        """Compare what was staged with the manifest, byte for byte through the digests.

        Raises:
            PublicationError: a tensor is missing, or its bytes are not those that were listed.
        """
        if self._missing:
            raise PublicationError(
                f"policy version {self.manifest.version}: {len(self._missing)} tensors were never staged,"
                f" among them {', '.join(sorted(self._missing)[:5])}"
            )
        for entry in self.manifest.tensors:
            found = tensor_digest(self._memory[entry.name])
            if found != entry.digest:
                raise PublicationError(
                    f"policy version {self.manifest.version}: {entry.name!r} arrived damaged: its digest"
                    f" is {found}, the manifest says {entry.digest}"
                )
        self._verified = True


def _check_listing(manifest: Manifest, served: Mapping[str, Tensor]) -> None:
    listed = manifest.by_name
    unknown = [name for name in listed if name not in served]
    absent = [name for name in served if name not in listed]
    if unknown or absent:
        raise PublicationError(
            f"policy version {manifest.version} does not fit the sampler's model:"
            f" {len(unknown)} tensors it does not have ({', '.join(unknown[:5]) or 'none'}),"
            f" {len(absent)} that it needs and are not listed ({', '.join(absent[:5]) or 'none'}). Tied"
            " tensors are listed once, under their first name; both sides must use the same model directory."
        )
    for name, entry in listed.items():
        if entry.shape != tuple(served[name].shape) or f"torch.{entry.dtype}" != str(served[name].dtype):
            raise PublicationError(
                f"policy version {manifest.version}: {name!r} is listed as {entry.dtype}"
                f"{list(entry.shape)}, but the sampler's model has {_form(served[name])}. Learner and"
                " sampler must use the same model directory and dtype."
            )


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
