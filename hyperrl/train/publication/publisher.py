"""One publication over several samplers, with one verdict for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from hyperrl.errors import ConfigError, PublicationError
from hyperrl.sampling import PublishTarget
from hyperrl.train.publication.buckets import make_buckets
from hyperrl.train.publication.manifest import Manifest, make_manifest, untied

__all__ = ["Publisher"]

_LOG = logging.getLogger(__name__)


class Publisher:
    """Publishes policy versions to ``targets``: all of them serve the new version, or none does.

    Args:
        targets: the samplers, at least one.
        bucket_bytes: most bytes handed to a target at once (a single larger tensor excepted).

    Raises:
        ConfigError: no target, or ``bucket_bytes`` is not positive.
    """

    def __init__(self, targets: Sequence[PublishTarget], *, bucket_bytes: int = 256 * 2**20) -> None:
        if not targets:
            raise ConfigError("a publisher needs at least one target")
        if bucket_bytes < 1:
            raise ConfigError(f"bucket_bytes must be at least 1, got {bucket_bytes}")
        self._targets = tuple(targets)
        self._bucket_bytes = bucket_bytes

    def publish(self, version: int, named_tensors: Mapping[str, Tensor]) -> Manifest:
        """Make ``named_tensors`` live as policy ``version`` everywhere, and return its manifest.

        While the tensors are staged and verified, sampling goes on with the version before. Then
        all targets pause, commit and resume together.

        Raises:
            PublicationError: a target refused or received something else. If that came before the
                first commit, everything staged is dropped and the version before is still served.
                If a commit itself failed, sampling stays paused everywhere until a publication
                succeeds, since the targets may differ.
        """
        tensors = untied(named_tensors)
        manifest = make_manifest(version, tensors)
        self._prepare(manifest, tensors)
        self._commit(version)
        _LOG.debug("published policy version %d (%s)", version, manifest.digest)
        return manifest

    def _prepare(self, manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
        begun: list[PublishTarget] = []
        try:
            for target in self._targets:
                target.begin(manifest)
                begun.append(target)
            for bucket in make_buckets(tensors, self._bucket_bytes):
                for target in self._targets:
                    target.stage(bucket)
            for target in self._targets:
                target.verify()
        except Exception as error:
            self._abort(begun)
            raise PublicationError(
                f"policy version {manifest.version} was not published: {error}."
                f" Version {self._served()} is still served."
            ) from error

    def _abort(self, begun: Sequence[PublishTarget]) -> None:
        for target in begun:
            _attempt(target.abort, "abort")

    def _commit(self, version: int) -> None:
        try:
            for target in self._targets:
                target.pause()
        except Exception as error:
            self._abort(self._targets)
            for target in self._targets:
                _attempt(target.resume, "resume")
            raise PublicationError(
                f"policy version {version} was not published: a sampler could not pause: {error}."
                f" Version {self._served()} is still served."
            ) from error
        try:
            for target in self._targets:
                target.commit()
        except Exception as error:
            self._abort(self._targets)
            raise PublicationError(
                f"policy version {version} failed while it was committed: {error}. The samplers now have"
                f" version {self._served()} and stay paused until a publication succeeds."
            ) from error
        for target in self._targets:
            target.resume()

    def _served(self) -> str:
        return ", ".join(str(v) for v in sorted({target.policy_version for target in self._targets}))


def _attempt(action: Callable[[], None], name: str) -> None:
    """Clean up as far as possible: the first error is the one to report."""
    try:
        action()
    except Exception:  # noqa: BLE001 - a second failure must not hide the first
        _LOG.exception("a sampler failed to %s", name)
