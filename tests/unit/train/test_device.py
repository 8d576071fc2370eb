"""Names of devices and number formats; threads; memory."""

import pytest
import torch

from hyperrl.errors import ConfigError
from hyperrl.train.device import (
    memory_exhausted,
    peak_memory_bytes,
    process_group_backend,
    resolve_device,
    resolve_dtype,
    set_threads,
)

CPU = torch.device("cpu")


def test_names_of_devices():
    assert resolve_device("cpu") == CPU
    assert resolve_device(CPU) == CPU
    found = torch.accelerator.current_accelerator(check_available=True)
    assert resolve_device("auto") == (found or CPU)
    with pytest.raises(ConfigError, match=r"got 'gpu'\.|got 'gpu'"):
        resolve_device("gpu")
    with pytest.raises(ConfigError, match="Did you mean 'cuda'"):
        resolve_device("cude:1")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
@pytest.mark.parametrize("name", ["cuda", "cuda:1", "npu:0"])
def test_an_absent_accelerator_is_refused(name):
    with pytest.raises(ConfigError, match=r"this machine does not offer it|is not usable"):
        resolve_device(name)


def test_names_of_formats():
    assert resolve_dtype("bfloat16") is torch.bfloat16
    with pytest.raises(ConfigError, match=r"got 'float23'\. Did you mean 'float32'"):
        resolve_dtype("float23")


def test_threads():
    before = torch.get_num_threads()
    set_threads(1)
    assert torch.get_num_threads() == 1
    set_threads(0)
    assert torch.get_num_threads() == 1
    set_threads(before)
    with pytest.raises(ConfigError, match="-1"):
        set_threads(-1)


def test_memory():
    assert peak_memory_bytes(CPU) > 10 * 2**20
    assert memory_exhausted(MemoryError())
    assert memory_exhausted(
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")
    )
    assert not memory_exhausted(RuntimeError("shapes"))
    assert not memory_exhausted(ValueError("can't allocate memory"))


def test_every_known_device_has_its_collectives():
    assert process_group_backend(CPU) == "gloo"
