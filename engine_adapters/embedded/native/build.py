"""Compiles the kernels once for this machine's processor and keeps the result."""

import hashlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

_SOURCES = Path(__file__).parent
_COMPILERS = ("g++", "c++", "clang++")
# No -ffast-math: infinities mean "not seen" here.
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math")
_TUNINGS = (("-march=native",), ("-mcpu=native",), ())  # x86, others, compilers that know neither
_PATIENCE = 300  # seconds


class NativeBuildError(Exception):
    """The kernels cannot be built here; the message says why."""


def build(cache: Path, compilers: Iterable[str] = _COMPILERS) -> Path:
    """Path of the shared library, built where `cache` has none for these sources, compiler and processor.

    Any number of processes may do this at once.

    Raises:
        NativeBuildError: no compiler, or it failed.
        OSError: the cache folder cannot be written.
    """
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    if compiler is None:
        raise NativeBuildError(f"no C++ compiler found (looked for {', '.join(compilers)})")
    library = cache / f"kernels-{_digest(compiler)}.so"
    if not library.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            built = Path(folder) / library.name
            _compile(compiler, built)
            built.replace(library)  # whole or not at all, whoever else builds
    return library


def _compile(compiler: str, target: Path) -> None:
    sources = [str(path) for path in sorted(_SOURCES.glob("*.cpp"))]
    complaint = ""
    for tuning in _TUNINGS:
        done = _run([compiler, *_FLAGS, *tuning, *sources, "-o", str(target)])
        if done.returncode == 0:
            return
        complaint = done.stderr.strip()[-2000:]
    raise NativeBuildError(f"{compiler} failed: {complaint}")


def _digest(compiler: str) -> str:
    """Changes with anything that changes the library, or what it may run on."""
    digest = hashlib.sha256()
    for path in sorted((*_SOURCES.glob("*.cpp"), *_SOURCES.glob("*.h"))):
        digest.update(path.read_bytes())
    version = _run([compiler, "--version"])
    if version.returncode:
        raise NativeBuildError(f"{compiler} --version failed: {version.stderr.strip()[-500:]}")
    digest.update(repr((compiler, version.stdout, _FLAGS, _TUNINGS, _processor())).encode())
    return digest.hexdigest()[:24]


def _processor() -> str:
    """What instructions there are: a cache folder may be shared by unequal machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    kinds = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(kinds)}))


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeBuildError(f"{command[0]}: {error}") from error
