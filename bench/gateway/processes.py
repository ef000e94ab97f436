"""The processes of the bench: each on its core, ended with its block, its CPU time and memory read from outside."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_START_S = 60  # seconds


class PeerError(Exception):
    """A process of the bench did not start; the message says why."""


@dataclass(frozen=True, slots=True)
class Running:
    """One server."""

    name: str
    process: psutil.Process
    port: int

    def cpu_s(self) -> float:
        """CPU seconds so far, of all its threads."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def memory(self) -> int:
        """Resident bytes."""
        return int(self.process.memory_info().rss)


@dataclass(frozen=True, slots=True)
class Cores:
    """Where processes run; None: wherever the system puts them."""

    relay: int | None
    load: int | None

    @classmethod
    def of_machine(cls) -> "Cores":
        """One for the relay, another for load and upstream, where there are two and the system can do it."""
        if not hasattr(os, "sched_getaffinity"):
            return cls(None, None)
        own = sorted(os.sched_getaffinity(0))
        return cls(own[0], own[1]) if len(own) > 1 else cls(None, None)

    def pin_load(self) -> None:
        """Put this process, which makes the load, onto its core."""
        if self.load is not None:
            psutil.Process().cpu_affinity([self.load])


@contextmanager
def started(
    command: Sequence[str], log: Path, core: int | None, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A child; what it writes is kept in files beside `log`, so that no pipe can fill."""
    with log.open("wb") as errors, log.with_suffix(".out").open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=errors, env={**os.environ, **(environ or {})})
        try:
            if core is not None:
                psutil.Process(child.pid).cpu_affinity([core])  # its threads come later, and inherit it
            yield child
        finally:
            child.terminate()
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextmanager
def module(name: str, arguments: Sequence[str], folder: Path, core: int | None) -> Iterator[Running]:
    """A module of the bench that says its port, or its address, in its first line."""
    log = folder / f"{name}.log"
    with started([sys.executable, "-m", f"bench.gateway.{name}", *arguments], log, core) as child:
        line = first_line(child, log, _START_S)
        yield Running(name, psutil.Process(child.pid), int(line.rsplit(":", 1)[-1]))


def first_line(child: subprocess.Popen[bytes], log: Path, wait_s: float) -> str:
    """The first whole line that the child prints; raises PeerError when it ends before, or time is up."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        said = log.with_suffix(".out").read_text(errors="replace")
        if "\n" in said:
            return said.split("\n", 1)[0]
        if child.poll() is not None:
            break
        time.sleep(0.05)
    raise PeerError(f"{log.stem} did not start: {last_line(log)}")


def wait_until_up(url: str, child: subprocess.Popen[bytes], log: Path, wait_s: float) -> None:
    """Returns when `url` answers with 200; raises PeerError when the child ends or time is up."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        if child.poll() is not None:
            raise PeerError(f"it ended at its start: {last_line(log)}")
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310  a server of this machine
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    raise PeerError(f"it did not answer within {wait_s:.0f} s: {last_line(log)}")


def last_line(log: Path) -> str:
    """Of what a child wrote to standard error."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
