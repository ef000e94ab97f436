"""Page-locked memory, which an accelerator reads and writes at full speed and without the processor."""

import logging
import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_log = logging.getLogger(__name__)


def pin_memory(memory: NDArray[np.uint8]) -> bool:
    """Lock this memory in place for as long as it lives; False where there is no CUDA or it refuses.

    Registered as it is: memory that torch allocates pinned is rounded up to a power of two.
    """
    if not torch.cuda.is_available():
        return False
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = memory.ctypes.data
    try:
        torch.cuda.check_error(runtime.cudaHostRegister(address, memory.nbytes, 0))
    except RuntimeError as error:
        _log.warning("%d bytes of host memory are not pinned: %s", memory.nbytes, error)
        return False
    owner = _owner(memory)
    # A memoryview lets go of its memory before it tells anybody that it ends, and memory has to be there until it is
    # unregistered: so that is held on to.
    held = owner.obj if isinstance(owner, memoryview) else None
    weakref.finalize(owner, _unregister, runtime, address, held).atexit = False
    return True


def _owner(memory: NDArray[np.uint8]) -> Any:
    """What the memory ends with: all views may go before it."""
    owner: Any = memory
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner


def _unregister(runtime: Any, address: int, held: Any) -> None:
    runtime.cudaHostUnregister(address)
