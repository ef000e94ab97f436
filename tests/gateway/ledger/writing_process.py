"""A process of its own that writes rows until it is told to stop, or is killed."""

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

_CODE = """
    import os, resource, sys, threading, time
    from gateway.ledger import LedgerRow, WriterSettings, open_writer

    url, name, first, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    patient = sys.argv[5] == "patient"
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    settings = WriterSettings(queue_rows=2_000, interval_s=0.05, first_retry_s=0.01, last_retry_s=0.1)
    writer = open_writer(url, os.environ, settings=settings)
    ending = threading.Event()

    def listen():
        for line in sys.stdin:
            if line == "lift\\n":
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            else:
                ending.set()

    threading.Thread(target=listen, daemon=True).start()
    number, counts = first, writer.counts()
    while not ending.is_set():
        # A slow machine is waited for, a database that fails is not.
        held = counts.waiting > 1_000 and (patient or counts.failing is None)
        for _ in range(0 if held else 20):
            writer.put(LedgerRow(str(number), name, "model", "chat", arrival=float(number)))
            number += 1
        counts = writer.counts()
        # One line is one write, so that a kill leaves no half of one.
        os.write(1, f"{counts.written} {counts.dropped} {counts.failing}\\n".encode())
        time.sleep(0.002)
    lost = writer.close(300.0 if patient else 10.0)
    counts = writer.counts()
    os.write(1, f"{counts.written} {counts.dropped} {counts.failing}\\n".encode())
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What the process said of its writer last."""

    written: int
    dropped: int
    failing: str | None


class WritingProcess:
    """Writes rows with ids from `first` upwards as tenant `name`.

    `limit`: bytes that a file may have, as on a full disk, until `lift`; 0: none. `patient`: it waits for a database
    that fails as well, as one does whose lock others hold for longer than it waits.
    """

    def __init__(self, url: str, name: str, first: int = 0, limit: int = 0, *, patient: bool = False) -> None:
        patience = "patient" if patient else "hasty"
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_CODE), url, name, str(first), str(limit), patience],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(Path.cwd()), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        )
        self.said = Said(0, 0, None)

    def line(self) -> Said:
        """What it says next."""
        assert self._process.stdout is not None
        written, dropped, failing = self._process.stdout.readline().split()
        self.said = Said(int(written), int(dropped), None if failing == "None" else failing)
        return self.said

    def lift(self) -> None:
        """Let files grow again."""
        self._tell("lift")

    def kill(self) -> Said:
        """Kill it without a warning; what it had said by then."""
        self._process.kill()
        return self._rest()

    def end(self) -> Said:
        """Let it close its writer; what it says then."""
        self._tell("end")
        said = self._rest()
        assert self._process.returncode == 0
        return said

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def _rest(self) -> Said:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                written, dropped, failing = line.split()
                self.said = Said(int(written), int(dropped), None if failing == "None" else failing)
        self._process.wait(600)
        return self.said
