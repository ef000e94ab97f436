"""The memory of the host tier."""

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_log = logging.getLogger(__name__)

Arena = NDArray[np.uint8]


def take_arena(blocks: int, block_bytes: int, allocate: Callable[[int], Arena]) -> tuple[Arena, str | None]:
    """uint8 [blocks, block_bytes], and None; where the machine refuses it [0, block_bytes], and why."""
    nothing = np.empty((0, block_bytes), dtype=np.uint8)
    if not blocks:
        return nothing, "its capacity is less than one block"
    try:
        memory = allocate(blocks * block_bytes)
    except (OSError, MemoryError, ValueError, OverflowError) as error:
        refusal = f"the machine refused {blocks * block_bytes} bytes: {error}"
        _log.warning("The host tier is off: %s", refusal)
        return nothing, refusal
    return memory.reshape(blocks, block_bytes), None
