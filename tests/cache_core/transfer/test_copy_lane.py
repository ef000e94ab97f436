"""In which order an accelerator is told to wait and to copy. Its streams are stood in for: the order is what counts."""

from contextlib import nullcontext

import pytest
import torch

from cache_core.transfer.copy_lane import CopyLane


class Event:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def synchronize(self) -> None:
        self.log.append(f"wait for {self.name}")


class Stream:
    """Says what it is told."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name, self.events = log, name, 0

    def record_event(self) -> Event:
        self.events += 1
        event = Event(self.log, f"{self.name} {self.events}")
        self.log.append(f"record {event.name}")
        return event

    def wait_event(self, event: Event) -> None:
        self.log.append(f"{self.name} waits for {event.name}")

    def synchronize(self) -> None:
        self.log.append(f"wait for all of {self.name}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    computing = Stream(said, "computing")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream(said, "copying"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: computing)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    return said


def test_a_copy_waits_for_what_was_computed_before_it_was_asked_for(log: list[str]) -> None:
    run = CopyLane(torch.device("cuda", 0)).after_now(lambda: log.append("copy"))
    pending = run()
    assert pending is not None
    pending.wait()
    assert log == [
        "record computing 1",
        "copying waits for computing 1",
        "copy",
        "record copying 1",
        "wait for copying 1",
    ]


def test_a_copy_that_breaks_half_way_leaves_nothing_at_work(log: list[str]) -> None:
    """Whoever hears of it lets go of both ends, so nothing may read or write them any more."""

    def breaks() -> None:
        log.append("half a copy")
        raise RuntimeError("out of memory")

    run = CopyLane(torch.device("cuda", 0)).after_now(breaks)
    with pytest.raises(RuntimeError, match="out of memory"):
        run()
    assert log[-2:] == ["half a copy", "wait for all of copying"]
