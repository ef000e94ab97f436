"""Jobs without bytes, which say what happened to them."""

import threading
from collections.abc import Callable

from cache_core.metrics import TierName
from cache_core.transfer import Job, Pending, Piece


class Recorder:
    """The order in which pieces ran, over all jobs of a test."""

    def __init__(self) -> None:
        self.ran: list[str] = []


class FakeJob(Job):
    """Each of its pieces waits for `gate`, if there is one, and fails where it is told to."""

    source: TierName = "host"
    target: TierName = "device"

    def __init__(
        self,
        name: str = "job",
        pieces: int = 3,
        nbytes: int = 10,
        recorder: Recorder | None = None,
        gate: threading.Event | None = None,
        fails_at: int | None = None,
        make_pending: Callable[[int], Pending] | None = None,
        source: TierName = "host",
        target: TierName = "device",
    ) -> None:
        self.name, self.gate, self.fails_at, self.make_pending = name, gate, fails_at, make_pending
        self.recorder = recorder or Recorder()
        self.source, self.target = source, target
        self.pieces = [Piece(nbytes, lambda index=index: self.run(index)) for index in range(pieces)]
        self.layer_ends = range(1, pieces + 1)
        self.begun = threading.Event()
        self.finished: list[bool] = []
        self.written_after_finish = False
        self.arrived: list[int] = []

    def run(self, index: int) -> Pending | None:
        self.begun.set()
        if self.gate is not None and not self.gate.wait(120):
            raise AssertionError("the test never opened the gate")
        if index == self.fails_at:
            raise OSError("this piece is broken")
        self.written_after_finish |= bool(self.finished)
        self.recorder.ran.append(f"{self.name}{index}")
        return self.make_pending(index) if self.make_pending else None

    def piece_done(self, index: int) -> None:
        self.arrived.append(index)

    def finish(self, done: bool) -> None:
        self.finished.append(done)
