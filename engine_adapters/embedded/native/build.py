"""Compiles the kernels once for this machine's processor and keeps the result."""

import hashlib
import platform
from collections.abc import Iterable
from pathlib import Path

from cache_core.native import NativeBuildError, built_once, find_compiler, run_compiler

_SOURCES = Path(__file__).parent
_COMPILERS = ("g++", "c++", "clang++")
# No -ffast-math: infinities mean "not seen" here.
_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math")
_TUNINGS = (("-march=native",), ("-mcpu=native",), ())  # x86, others, compilers that know neither
_PATIENCE = 300  # seconds


def build(cache: Path, compilers: Iterable[str] = _COMPILERS) -> Path:
    """Path of the shared library, built where `cache` has none for these sources, compiler and processor.

    Any number of processes may do this at once.

    Raises:
        NativeBuildError: no compiler, or it failed.
        OSError: the cache folder cannot be written.
    """
    compiler = find_compiler("C++", compilers)
    return built_once(cache / f"kernels-{_digest(compiler)}.so", lambda target: _compile(compiler, target))


def _compile(compiler: str, target: Path) -> None:
    sources = [str(path) for path in sorted(_SOURCES.glob("*.cpp"))]
    for tuning in _TUNINGS:
        try:
            run_compiler([compiler, *_FLAGS, *tuning, *sources, "-o", str(target)], _PATIENCE)
        except NativeBuildError:
            if tuning == _TUNINGS[-1]:
                raise
        else:
            return


def _digest(compiler: str) -> str:
    """Changes with anything that changes the library, or what it may run on."""
    digest = hashlib.sha256()
    for path in sorted((*_SOURCES.glob("*.cpp"), *_SOURCES.glob("*.h"))):
        digest.update(path.read_bytes())
    version = run_compiler([compiler, "--version"], _PATIENCE)
    digest.update(repr((compiler, version, _FLAGS, _TUNINGS, _processor())).encode())
    return digest.hexdigest()[:24]


def _processor() -> str:
    """What instructions there are: a cache folder may be shared by unequal machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    kinds = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(kinds)}))
