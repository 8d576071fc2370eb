"""Devices, number formats and threads: the one place that knows accelerators by name."""

from __future__ import annotations

import re
import resource
import sys

import torch

from hyperrl.errors import ConfigError, nearest

__all__ = [
    "DTYPES",
    "find_peak_flops",
    "has_fused_optimizers",
    "known_peak_flops",
    "memory_exhausted",
    "peak_memory_bytes",
    "process_group_backend",
    "resolve_device",
    "resolve_dtype",
    "set_threads",
]

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""The number formats that a model may be loaded in, by the name a config uses."""

_PEAK_FLOPS = {
    "GB200": 2.5e15,
    "B200": 2.25e15,
    "H100": 989e12,
    "H200": 989e12,
    "H800": 989e12,
    "H20": 148e12,
    "A100": 312e12,
    "A800": 312e12,
    "L40S": 362.05e12,
    "L40": 181.05e12,
    "L20": 119.5e12,
    "A40": 149.7e12,
    "910B": 354e12,
    "Ascend910": 354e12,
}
"""Dense 16-bit FLOP/s by a part of the device's name, as in verl; the first that fits."""

_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl"}


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """Return the device called ``name``; ``auto`` is the accelerator of this machine, else the CPU.

    Raises:
        ConfigError: no such device, or this machine or this build of torch does not have it.
    """
    if name == "auto":
        return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    kind = str(name).split(":")[0]
    if kind not in _BACKENDS:
        known = ["auto", *_BACKENDS]
        raise ConfigError(
            f"device must be one of {', '.join(known)} (with an index, such as cuda:1, where there are"
            f" several), got {str(name)!r}.{nearest(kind, known)}"
        )
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device {str(name)!r} is not usable: {error}") from error
    if device.type != "cpu":
        _check_present(device)
    return device


def _check_present(device: torch.device) -> None:
    present = torch.accelerator.current_accelerator(check_available=True)
    if present is None or present.type != device.type:
        found = f"it has {present.type}" if present else "it has none that torch can use"
        raise ConfigError(
            f"device {str(device)!r} was asked for, but this machine does not offer it ({found})."
            " Use device 'auto' or 'cpu', or install the torch build for your accelerator."
        )
    count = torch.accelerator.device_count()
    index: int | None = device.index  # torch's own annotation leaves out None
    if index is not None and index >= count:
        raise ConfigError(f"device {str(device)!r} was asked for, but there are {count}, numbered from 0")


def resolve_dtype(name: str) -> torch.dtype:
    """Return the torch dtype called ``name``, such as ``float32`` or ``bfloat16``.

    Raises:
        ConfigError: no such dtype for a model.
    """
    if name not in DTYPES:
        raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {name!r}.{nearest(name, DTYPES)}")
    return DTYPES[name]


def process_group_backend(device: torch.device) -> str:
    """Return the name of the collective library for tensors on ``device``."""
    return _BACKENDS[device.type]


def has_fused_optimizers(device: torch.device) -> bool:
    """Whether PyTorch's own optimizers have one kernel for the whole update on ``device``."""
    return device.type in ("cpu", "cuda")


def set_threads(count: int) -> None:
    """Use ``count`` CPU threads within one tensor operation; 0 leaves torch's own choice.

    Raises:
        ConfigError: ``count`` is negative.
    """
    if count < 0:
        raise ConfigError(f"threads must be at least 1, or 0 for torch's own choice, got {count}")
    if count:
        torch.set_num_threads(count)


def known_peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Return the peak of ``device`` in FLOP/s with weights of ``dtype``; 0 where it is not known."""
    if device.type == "cpu" or dtype.itemsize != 2:
        return 0.0
    return find_peak_flops(str(torch.get_device_module(device).get_device_name(device)))


def find_peak_flops(device_name: str) -> float:
    """Return the dense 16-bit peak in FLOP/s of a device by its name; 0 where it is not known."""
    # No digit behind a part: an RTX A4000 is no A40. But Ascend's names go on with a number ("910B3").
    fits = (
        peak for part, peak in _PEAK_FLOPS.items() if re.search(rf"{part}(?!\d)|Ascend{part}", device_name)
    )
    return next(fits, 0.0)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory in use so far: tensors on an accelerator, resident memory on the CPU."""
    if device.type != "cpu":
        return int(torch.accelerator.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def memory_exhausted(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out, on an accelerator or on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
