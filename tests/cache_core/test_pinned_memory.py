"""Memory is page-locked as long as it lives, and no longer."""

import gc
from pathlib import Path

import numpy as np
import pytest
import torch

from cache_core.memory import anonymous_memory
from cache_core.pinned_memory import pin_memory


class Runtime:
    """In place of CUDA's: says what is locked, and whether it was still there when it was unlocked."""

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.mapped_at_the_end: list[bool] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802  CUDA's name
        self.locked[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.mapped_at_the_end.append(mapped(address))
        del self.locked[address]
        return 0


def mapped(address: int) -> bool:
    """Whether this process has memory there."""
    spans = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(first, 16) <= address < int(end, 16) for first, end in spans)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    runtime = Runtime()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    return runtime


@pytest.mark.parametrize("anonymous", [True, False])
def test_it_is_unlocked_with_its_last_view_and_before_it_is_given_back(
    runtime: Runtime, anonymous: bool
) -> None:
    size = 4 << 20
    memory = anonymous_memory(size) if anonymous else np.zeros(size, dtype=np.uint8)
    assert pin_memory(memory)
    assert list(runtime.locked.values()) == [size]
    view = torch.from_numpy(memory.reshape(4, -1))[1:]
    del memory
    gc.collect()
    assert runtime.locked
    del view
    gc.collect()
    assert not runtime.locked
    assert runtime.mapped_at_the_end == [True]


def test_where_the_driver_refuses_memory_is_used_as_it_is(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(code: int) -> None:
        raise RuntimeError("cudaErrorMemoryAllocation")

    monkeypatch.setattr(torch.cuda, "check_error", refuse)
    memory = np.zeros(4096, dtype=np.uint8)
    assert not pin_memory(memory)
    del memory
    gc.collect()
    assert runtime.mapped_at_the_end == []


def test_without_cuda_nothing_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not pin_memory(np.zeros(4096, dtype=np.uint8))
