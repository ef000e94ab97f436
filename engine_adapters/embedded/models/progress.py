"""One line a stage, and a sign of life every two seconds while a stage lasts."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str], None]
"""Takes one line without a newline. It is called from the caller's thread and from one helper thread."""

BEAT_S = 2.0


def silent(line: str) -> None:
    """A `Progress` that says nothing."""


@contextmanager
def stage(
    progress: Progress, text: str, *, detail: Callable[[], str] | None = None, every_s: float = BEAT_S
) -> Iterator[None]:
    """Say `text` now, and again with `detail()` and the seconds gone by every `every_s` seconds inside."""
    progress(text)
    done = threading.Event()
    started = time.monotonic()

    def beat() -> None:
        while not done.wait(every_s):
            seconds = f"{time.monotonic() - started:.0f} s"
            progress(f"{text} ({detail()}, {seconds})" if detail else f"{text} ({seconds})")

    thread = threading.Thread(target=beat, name="kvgate-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
