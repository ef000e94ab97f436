"""Builds small C sources with the compiler that is there, and loads them."""

import ctypes
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path

from cache_core.native.compiling import built_once, find_compiler, run_compiler
from cache_core.user_folder import cache_dir

_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-pthread")
_COMPILERS = ("gcc", "cc", "clang")
_PATIENCE = 120  # seconds


def library_folder(environ: Mapping[str, str]) -> Path:
    """Where built libraries are kept."""
    return cache_dir(environ) / "native"


def load_library(
    name: str, folder: Path, flags: tuple[str, ...] = (), *, keep_gil: bool = False
) -> ctypes.CDLL:
    """The library made from `name`.c beside this file, from `folder` or built into it.

    Any number of processes may do this at once. `keep_gil`: its calls are so short that other threads may wait.

    Raises:
        NativeBuildError: no compiler, or it failed.
        OSError: the folder cannot be written, or the library not loaded.
    """
    source = Path(__file__).with_name(f"{name}.c")
    parts = [source, *sorted(source.parent.glob(f"{name}_*.h"))]
    made_from = (
        b"".join(part.read_bytes() for part in parts) + repr((_FLAGS + flags, platform.machine())).encode()
    )
    path = folder / f"{name.replace('_', '-')}-{hashlib.sha256(made_from).hexdigest()[:24]}.so"
    built_once(path, lambda target: _compile(source, target, flags))
    return (ctypes.PyDLL if keep_gil else ctypes.CDLL)(str(path))


def _compile(source: Path, target: Path, flags: tuple[str, ...]) -> None:
    command = [find_compiler("C", _COMPILERS), *_FLAGS, *flags, str(source), "-o", str(target), "-lm"]
    run_compiler(command, _PATIENCE)
