"""What a process holds, and clients that load it."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from tests.waiting import wait_until

MESSAGES = [{"role": "user", "content": "Hi"}]


@dataclass(frozen=True, slots=True)
class Held:
    """By one process."""

    descriptors: int
    resident: int  # bytes
    threads: int


def held(pid: int) -> Held:
    process = psutil.Process(pid)
    return Held(process.num_fds(), process.memory_info().rss, process.num_threads())


@dataclass(slots=True)
class Outcomes:
    """What clients saw: statuses, `cut` where an answer did not end, `refused` where no connection was taken."""

    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: str) -> None:
        with self.lock:
            self.counts[outcome] += 1

    def __getitem__(self, outcome: str) -> int:
        return self.counts[outcome]


def ask(http: httpx.Client, url: str, model: str, *, stream: bool) -> str:
    """One request; what came of it."""
    body: dict[str, Any] = {"model": model, "messages": MESSAGES, "stream": stream}
    try:
        answer = http.post(f"{url}/v1/chat/completions", json=body)
    except httpx.ConnectError:
        return "refused"
    except httpx.HTTPError as error:
        return f"cut: {type(error).__name__}: {error}"
    if stream and answer.status_code == 200 and "[DONE]" not in answer.text:
        return "cut: no end"
    return str(answer.status_code)


@contextmanager
def loaded(url: str, model: str, clients: int, outcomes: Outcomes) -> Iterator[threading.Event]:
    """`clients` ask one after the other, every second one streams, until none is let in or the event is set."""
    stop = threading.Event()

    def run(number: int) -> None:
        with httpx.Client(timeout=60) as http:
            while not stop.is_set():
                outcome = ask(http, url, model, stream=number % 2 == 0)
                outcomes.add(outcome)
                if outcome == "refused":
                    return

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


def settles(pid: int, descriptors: int) -> Held:
    """Waits until the process holds so many descriptors at most; what it holds then."""
    wait_until(lambda: held(pid).descriptors <= descriptors, f"at most {descriptors} descriptors are held")
    return held(pid)
