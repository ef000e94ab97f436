"""Builds and loads the copy of many spans between scattered places in main memory."""

import ctypes
import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cache_core.errors import CacheError

Addresses = NDArray[np.int64]
SpanCopy = Callable[[Addresses, Addresses, int], None]  # (to, from, bytes of one span): `from` stays alive

_SOURCE = Path(__file__).with_name("span_copy.c")
_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared")
_COMPILERS = ("gcc", "cc", "clang")
_PATIENCE = 120  # seconds


class NativeBuildError(CacheError):
    """The copy cannot be built here; the message says why."""


def load_span_copy(folder: Path) -> SpanCopy:
    """The function, from `folder` or built into it. Any number of processes may do this at once.

    Raises:
        NativeBuildError: no compiler, or it failed.
        OSError: the folder cannot be written, or the library not loaded.
    """
    digest = hashlib.sha256(_SOURCE.read_bytes() + repr((_FLAGS, platform.machine())).encode()).hexdigest()
    path = folder / f"span-copy-{digest[:24]}.so"
    if not path.is_file():
        _build(path)
    copy = ctypes.CDLL(str(path)).kvgate_copy_spans
    copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    copy.restype = None

    def copy_spans(to: Addresses, source: Addresses, size: int) -> None:
        if to.shape != source.shape or not (to.flags.c_contiguous and source.flags.c_contiguous):
            raise ValueError("spans are copied between two contiguous arrays of addresses, equally long")
        copy(to.ctypes.data, source.ctypes.data, to.size, size)

    return copy_spans


def _build(path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise NativeBuildError(f"no C compiler found (looked for {', '.join(_COMPILERS)})")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / path.name
        try:
            done = subprocess.run(  # noqa: S603
                [compiler, *_FLAGS, str(_SOURCE), "-o", str(built)],
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NativeBuildError(f"{compiler} did not end in {_PATIENCE} seconds") from error
        if done.returncode:
            raise NativeBuildError(f"{compiler} failed: {done.stderr.strip()[-2000:]}")
        built.replace(path)  # whole or not at all, whoever else builds
