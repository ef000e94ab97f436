"""Builds small C sources with the compiler that is there, and loads them."""

import ctypes
import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cache_core.errors import CacheError
from cache_core.user_folder import cache_dir

_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-pthread")
_COMPILERS = ("gcc", "cc", "clang")
_PATIENCE = 120  # seconds


class NativeBuildError(CacheError):
    """It cannot be built here; the message says why."""


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
    if not path.is_file():
        _build(source, path, flags)
    return (ctypes.PyDLL if keep_gil else ctypes.CDLL)(str(path))


def _build(source: Path, path: Path, flags: tuple[str, ...]) -> None:
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise NativeBuildError(f"no C compiler found (looked for {', '.join(_COMPILERS)})")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / path.name
        try:
            done = subprocess.run(  # noqa: S603
                [compiler, *_FLAGS, *flags, str(source), "-o", str(built), "-lm"],
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
