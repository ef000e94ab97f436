"""Small native sources are compiled once, with the compiler that is there, and kept."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from cache_core.errors import CacheError

_TOLD = 2000  # characters of a compiler's complaint


class NativeBuildError(CacheError):
    """It cannot be built here; the message says why."""


def find_compiler(language: str, names: Iterable[str]) -> str:
    """Path of the first of these that is there.

    Raises:
        NativeBuildError: none is.
    """
    names = tuple(names)
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        raise NativeBuildError(f"no {language} compiler found (looked for {', '.join(names)})")
    return compiler


def run_compiler(command: list[str], patience: float) -> str:
    """What it wrote to its standard output; it gets `patience` seconds.

    Raises:
        NativeBuildError: it did not start, did not end, or failed.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeBuildError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise NativeBuildError(f"{command[0]} failed: {done.stderr.strip()[-_TOLD:]}")
    return done.stdout


def built_once(path: Path, compile_to: Callable[[Path], None]) -> Path:
    """`path`, made by `compile_to` where it is not there yet. Any number of processes may do this at once.

    Raises:
        OSError: the folder cannot be written.
    """
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            built = Path(scratch) / path.name
            compile_to(built)
            built.replace(path)  # whole or not at all, whoever else builds
    return path
