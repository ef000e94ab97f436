"""The built kernels, as Python sees them."""

import ctypes
import logging
import os
from functools import cache
from pathlib import Path

import torch

from cache_core.native import NativeBuildError
from engine_adapters.embedded.models import cache_dir
from engine_adapters.embedded.native.build import build

_log = logging.getLogger(__name__)

_POINTERS = ("query", "key", "value", "sinks", "keys", "values", "output")
_PLAN_POINTERS = ("token_slots", "tables", "items", "rows", "merges")
_LONGS = ("query_token", "query_head", "key_token", "key_head", "value_token", "value_head", "slots")
_INTS = ("tokens", "heads", "kv_heads", "key_dim", "value_dim", "block_size")
_COUNTS = ("items_count", "merges_count", "partials", "threads")


class AttentionCall(ctypes.Structure):
    """Mirrors `KvgateAttention` in attention.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (*_POINTERS, *_PLAN_POINTERS)),
        *((name, ctypes.c_int64) for name in _LONGS),
        *((name, ctypes.c_int32) for name in (*_INTS, *_COUNTS)),
        ("scaling", ctypes.c_float),
        ("softcap", ctypes.c_float),
    )


class NativeLibrary:
    """The kernels of one shared library. Any thread may call them; each call uses torch's own threads."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        library.kvgate_set_fork.argtypes = [ctypes.c_void_p]
        library.kvgate_set_fork.restype = None
        library.kvgate_set_fork(_openmp_fork())
        self._attend = library.kvgate_attend
        self._attend.argtypes = [ctypes.c_void_p]
        self._attend.restype = None
        self._linear = library.kvgate_linear
        self._linear.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3 + [ctypes.c_int]
        self._linear.restype = None

    def attend(self, call: AttentionCall) -> None:
        """Write the new keys and values, then attend; everything the call points to must stay alive."""
        self._attend(ctypes.addressof(call))

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """`x @ weight.T + bias` for contiguous float32 tensors on the CPU."""
        columns, depth = weight.shape
        y = x.new_empty((*x.shape[:-1], columns))
        self._linear(
            x.data_ptr(),
            weight.data_ptr(),
            None if bias is None else bias.data_ptr(),
            y.data_ptr(),
            x.numel() // depth,
            columns,
            depth,
            torch.get_num_threads(),
        )
        return y


@cache
def load_native() -> NativeLibrary | None:
    """The kernels for this machine, or None, with the reason logged once, where they cannot be had."""
    try:
        return NativeLibrary(build(cache_dir(os.environ) / "native"))
    except (NativeBuildError, OSError, AttributeError) as error:
        _log.warning("no native kernels, torch does all the work: %s", error)
        return None


def _openmp_fork() -> int | None:
    """Address of the parallel-region entry of the OpenMP runtime torch runs on; None: run on one thread.

    Another copy of the runtime would bring threads of its own, which spin on the cores torch's threads want.
    """
    for path in _openmp_runtimes():
        entry = getattr(ctypes.CDLL(path), "GOMP_parallel", None)
        if entry is not None:
            return ctypes.cast(entry, ctypes.c_void_p).value
    _log.warning("torch's OpenMP runtime was not found: native kernels use one thread")
    return None


def _openmp_runtimes() -> list[str]:
    """Loaded OpenMP libraries, those that came with torch first; others may have come with other packages."""
    home = Path(torch.__file__).parent
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        maps = ""
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "omp" in line}
    loaded = sorted(path for path in paths if Path(path).name.startswith(("libgomp", "libiomp5", "libomp")))
    mine = (str(home), str(home.with_name("torch.libs")))
    return sorted(loaded, key=lambda path: not path.startswith(mine))
