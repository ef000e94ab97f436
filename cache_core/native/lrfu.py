"""The compiled state of adaptive LRFU, behind Python's types."""

import ctypes
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cache_core.native.library import load_library
from cache_core.tokens import Tokens

log = logging.getLogger(__name__)

# Else the compiler may compute 2**x in another way than Python does, and scores would differ in their last bits.
_FLAGS = ("-fno-builtin-pow",)
_DOUBLES, _WORDS = ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is remembered."""

    accesses: int
    blocks: int
    memory: int  # bytes, none of which Python's own figures include
    records: int
    entries: int  # rooms in heaps
    shadow_blocks: tuple[int, ...]  # held by each shadow cache


class Handle:
    """Leads to a record, and keeps it readable for as long as it lives, though it may be forgotten by then."""

    __slots__ = ("_state", "slot")

    def __init__(self, state: "NativeState", slot: int) -> None:
        self._state = state
        self.slot = slot

    def __del__(self) -> None:
        self._state.release(self.slot)


class NativeState:
    """What `History`, `ShadowCache` and the scores are to `AdaptiveLRFU`. Not locked, but every call is whole."""

    def __init__(
        self,
        library: ctypes.CDLL,
        half_lives: Sequence[float],
        chosen: int,
        capacity: int,
        limit: int,
        vote_every: int,
        factors: NDArray[np.uint64],
    ) -> None:
        lives = (ctypes.c_double * len(half_lives))(*half_lives)
        factors = np.ascontiguousarray(factors)
        self._library = library
        self._shadows = len(half_lives)
        self._state = library.kvgate_lrfu_new(
            len(half_lives), lives, chosen, capacity, limit, vote_every, len(factors), factors.ctypes.data
        )
        if not self._state:
            raise MemoryError("no memory for the history of the eviction policy")
        self._free = library.kvgate_lrfu_free
        self._block_size = len(factors)
        self.failed = False  # memory ran out
        self._roots: dict[str, int] = {}
        self._out = (ctypes.c_int64 * 4)()
        self._accessed, self._current = library.kvgate_lrfu_accessed, library.kvgate_lrfu_current
        self._refer = library.kvgate_lrfu_refer

    def accessed(
        self, scope: str, tokens: Tokens, ready: int, looked_up: int
    ) -> tuple[int, int, Handle | None]:
        """One use of a path: how many of its blocks were ghosts, the half-life chosen now, and its last record.

        `ready` leading blocks were there when it was looked up, after `looked_up` accesses; -1: nobody asks.
        """
        root = self._roots.get(scope)
        if root is None:
            root = self._roots[scope] = self._library.kvgate_lrfu_root(self._state)
        out, blocks = self._out, len(tokens) // self._block_size
        self._accessed(self._state, root, tokens.ctypes.data, blocks, ready, looked_up, out)
        ghosts, chosen, slot, failed = out
        if failed and not self.failed:
            self.failed = True
            log.error(
                "No memory for the history of the eviction policy: it ranks by what it knows, and learns no more"
            )
        return ghosts, chosen, Handle(self, slot) if slot else None

    def current(self, handle: Handle, end: int) -> tuple[float, int, Handle]:
        """Score and start (blocks) of the record that covers block `end` - 1 on the way to this one, and itself."""
        out = self._out
        score = self._current(self._state, handle.slot, end, out)
        slot, start = out[0], out[1]
        if slot != handle.slot:
            self._refer(self._state, slot, 1)
            handle = Handle(self, slot)
        return score, start, handle

    def purged(self, scope: str) -> None:
        """Forget a scope."""
        root = self._roots.pop(scope, None)
        if root is not None:
            self._library.kvgate_lrfu_purged(self._state, root)

    def release(self, slot: int) -> None:
        """One handle less. For `Handle` alone, which may go after the state where both were garbage together."""
        if self._state:
            self._refer(self._state, slot, -1)

    def __del__(self) -> None:
        state, self._state = getattr(self, "_state", None), None
        if state:
            self._free(state)

    def counts(self) -> Counts:
        """Slow; for figures and tests."""
        out = (ctypes.c_int64 * (5 + self._shadows))()
        self._library.kvgate_lrfu_counts(self._state, out)
        accesses, blocks, memory, records, entries, *shadows = out
        return Counts(accesses, blocks, memory, records, entries, tuple(shadows))


def load_lrfu(folder: Path) -> ctypes.CDLL:
    """The library, from `folder` or built into it; for `NativeState`.

    Raises:
        NativeBuildError: no compiler, or it failed.
        OSError: the folder cannot be written, or the library not loaded.
    """
    library = load_library("lrfu", folder, _FLAGS, keep_gil=True)
    state, word, pointer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    forms: dict[str, tuple[Any, list[Any]]] = {
        "new": (state, [word, _DOUBLES, word, word, word, word, word, pointer]),
        "free": (None, [state]),
        "root": (word, [state]),
        "accessed": (None, [state, word, pointer, word, word, word, _WORDS]),
        "current": (ctypes.c_double, [state, word, word, _WORDS]),
        "refer": (None, [state, word, word]),
        "purged": (None, [state, word]),
        "counts": (None, [state, _WORDS]),
    }
    for name, (result, arguments) in forms.items():
        function = getattr(library, f"kvgate_lrfu_{name}")
        function.restype, function.argtypes = result, arguments
    return library
