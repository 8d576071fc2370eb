"""Causal language models in the Hugging Face layout: load, build empty, save. Always offline."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hyperrl.errors import ModelError
from hyperrl.train.device import memory_exhausted
from hyperrl.train.models.info import read_config

__all__ = [
    "build_model",
    "checkpoint_layers",
    "equal_weights",
    "install_weights",
    "load_model",
    "named_weights",
    "replaced_directory",
    "save_model",
    "write_model",
]

_TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
_ATTENTION = ("eager", "sdpa")


def load_model(
    model_dir: Path | str, *, dtype: torch.dtype, device: torch.device, attention: str = "eager"
) -> nn.Module:
    """Load the causal language model in ``model_dir``, in eval mode, with every dropout at 0.

    Args:
        model_dir: a directory with ``config.json`` and ``*.safetensors``; nothing is downloaded.
        dtype: number format of the weights.
        device: where the weights go.
        attention: ``eager`` or ``sdpa``.

    Raises:
        ModelError: the directory or a file is missing, or the architecture is not supported.
    """
    directory = Path(model_dir)
    read_config(directory)
    if not any(directory.glob("*.safetensors")):
        raise ModelError(
            f"{str(directory)!r} has no *.safetensors file. Weights in other formats must be converted"
            " first, for example with transformers' save_pretrained."
        )
    config = _load_config(directory, attention)
    options = {"config": config, "dtype": dtype, "local_files_only": True, "output_loading_info": True}
    model, report = _guarded(directory, lambda auto: auto.from_pretrained(directory, **options))
    _check_complete(directory, report)
    return cast(nn.Module, model.to(device).eval())


def build_model(
    model_dir: Path | str, *, dtype: torch.dtype, device: torch.device, attention: str = "eager"
) -> nn.Module:
    """Build the architecture that ``model_dir`` describes without loading its weights.

    The weights hold arbitrary numbers until they are filled. Arguments and errors are those of
    :func:`load_model`, but only ``config.json`` needs to exist.
    """
    from transformers.initialization import no_init_weights  # noqa: PLC0415 - heavy

    directory = Path(model_dir)
    config = _load_config(directory, attention)
    with no_init_weights():
        model = _guarded(directory, lambda auto: auto.from_config(config, dtype=dtype))
    model.tie_weights()
    return cast(nn.Module, model.to(device).eval())


def checkpoint_layers(model: nn.Module) -> nn.Module:
    """Let the layers of ``model`` keep only their inputs for the backward pass; return the model.

    What they hold in between is computed again, so the gradients are the same. Only passes with gradients
    are affected.

    Raises:
        ModelError: the architecture has no layers that can do so.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer  # noqa: PLC0415 - heavy

    layers: list[Any] = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise ModelError(
            f"{type(model).__name__} has no layers for gradient checkpointing; set"
            " model.gradient_checkpointing: false"
        )
    for layer in layers:
        layer.forward = _checkpointed(layer.forward)
    return model


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Unlike the layers' own switch, this one does not ask for training mode, which has dropout."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return run


def equal_weights(model: nn.Module, other: nn.Module) -> bool:
    """Whether two models have the same parameters and persistent buffers, bit for bit."""
    own, others = model.state_dict(), other.state_dict()
    return own.keys() == others.keys() and all(_same_bits(own[name], others[name]) for name in own)


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(*(t.detach().cpu().reshape(-1).view(torch.uint8) for t in (left, right)))


def named_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return what a published version of ``model`` contains: parameters and persistent buffers.

    Tied tensors appear once, under the name that comes first. Nothing is copied.
    """
    state = model.state_dict(keep_vars=True)
    named = dict(model.named_parameters())
    seen = {id(tensor) for tensor in named.values()}
    buffers = {name: tensor for name, tensor in state.items() if id(tensor) not in seen}
    return {name: tensor.detach() for name, tensor in {**named, **buffers}.items()}


def install_weights(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Copy ``tensors`` into ``model``.

    Args:
        model: the model.
        tensors: all of :func:`named_weights`, in the same shapes and dtypes.
    """
    with torch.no_grad():
        for name, target in named_weights(model).items():
            target.copy_(tensors[name])


def save_model(model: nn.Module, model_dir: Path | str, *, tokenizer_from: Path | str) -> Path:
    """Write ``model`` as a complete model directory and return its path.

    Config, safetensors, tokenizer files and chat template are written next to the target, synced
    and renamed, so a reader sees all of it or nothing. An existing directory is replaced.

    Args:
        model: a causal language model of transformers.
        model_dir: the directory to write.
        tokenizer_from: the model directory whose tokenizer and chat template are copied.

    Raises:
        ModelError: ``tokenizer_from`` has no tokenizer, or the files cannot be written.
    """
    target, source = Path(model_dir), Path(tokenizer_from)
    files = [source / name for name in _TOKENIZER_FILES if (source / name).is_file()]
    if not any(file.name.startswith("tokenizer") for file in files):
        raise ModelError(f"{str(source)!r} has no tokenizer.json to copy into {str(target)!r}")
    with replaced_directory(target) as temporary:
        write_model(model, temporary)
        for file in files:
            shutil.copyfile(file, temporary / file.name)
    return target


def write_model(model: nn.Module, directory: Path) -> None:
    """Write config and safetensors of ``model`` into ``directory``, without a progress bar."""
    saver: Any = model
    with _no_progress_bar():
        saver.save_pretrained(directory)


@contextlib.contextmanager
def replaced_directory(target: Path) -> Iterator[Path]:
    """Yield a new directory beside ``target`` that takes its place when the block succeeds.

    Raises:
        ModelError: the directory cannot be written or renamed, or ``target`` is something else than
            a model directory.
    """
    if (
        target.exists()
        and not (target / "config.json").exists()
        and (target.is_file() or any(target.iterdir()))
    ):
        raise ModelError(f"{str(target)!r} exists and is not a model directory; it is not replaced")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise ModelError(f"cannot write the model directory {str(target)!r}: {error}") from error
    try:
        yield temporary
        temporary.chmod(0o755)
        for file in temporary.rglob("*"):
            _sync(file)
        _swap(temporary, target)
        _sync(target.parent)
    except OSError as error:
        raise ModelError(f"cannot write the model directory {str(target)!r}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(new: Path, target: Path) -> None:
    """Put ``new`` where ``target`` is; a directory cannot be renamed over one that is not empty."""
    if not target.exists():
        new.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(old / "replaced")
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_complete(directory: Path, report: Mapping[str, Any]) -> None:
    """Refuse a model whose missing tensors transformers would fill with random numbers."""
    for problem in ("missing_keys", "mismatched_keys"):
        if report[problem]:
            names = ", ".join(sorted(map(str, report[problem]))[:5])
            raise ModelError(
                f"the weights in {str(directory)!r} do not fit its config.json:"
                f" {problem.replace('_', ' ')}: {names}"
            )


def _load_config(directory: Path, attention: str) -> Any:
    from transformers import AutoConfig  # noqa: PLC0415 - heavy

    if attention not in _ATTENTION:
        raise ModelError(f"attention must be one of {', '.join(_ATTENTION)}, got {attention!r}")
    model_type = read_config(directory).get("model_type")
    try:
        config = AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False, attn_implementation=attention
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"the model type {model_type!r} of {str(directory)!r} is not supported by the installed"
            f" transformers: {error}"
        ) from error
    for name, value in vars(config).items():
        if name.endswith(("dropout", "pdrop")) and isinstance(value, float | int):
            setattr(config, name, 0.0)
    return config


def _guarded(directory: Path, make: Any) -> Any:
    """Call ``make`` with ``AutoModelForCausalLM`` and turn what goes wrong into a ModelError."""
    from safetensors import SafetensorError  # noqa: PLC0415 - heavy
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - heavy

    try:
        with _no_progress_bar():
            return make(AutoModelForCausalLM)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        if memory_exhausted(error):
            raise
        raise ModelError(f"the model in {str(directory)!r} cannot be used: {error}") from error


@contextlib.contextmanager
def _no_progress_bar() -> Iterator[None]:
    from transformers.utils import logging  # noqa: PLC0415 - heavy

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
