"""Threads that hang are put aside, and only so many of them."""

import threading
from collections.abc import Iterator
from threading import Event

import pytest

from cache_core.tiers.io_threads import IoThreads
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def release() -> Iterator[Event]:
    event = Event()
    yield event
    event.set()


def test_what_comes_after_a_thread_was_put_aside_does_not_wait_for_it(release: Event) -> None:
    threads, begun = IoThreads(1, "one"), Event()

    def hang() -> str:
        begun.set()
        release.wait(PATIENCE_S)
        return "at last"

    hung = threads.submit(hang)
    behind = threads.submit(lambda: "behind it")
    assert begun.wait(PATIENCE_S)
    threads.set_aside()
    assert threads.submit(lambda: "beside it").result(PATIENCE_S) == "beside it"
    assert not behind.done()
    release.set()
    assert hung.result(PATIENCE_S) == "at last"
    assert behind.result(PATIENCE_S) == "behind it"
    threads.close(wait=True)


def test_idle_threads_are_not_put_aside() -> None:
    threads = IoThreads(1, "idle")
    assert (
        threads.submit(threading.get_ident).result(PATIENCE_S) == threads.submit(threading.get_ident).result()
    )
    wait_until(lambda: not threads._pool.busy, "the thread to be idle")
    pool = threads._pool
    threads.set_aside()
    assert threads._pool is pool
    threads.close(wait=True)


def test_only_so_many_are_put_aside(release: Event) -> None:
    threads = IoThreads(1, "many")
    hung = []
    for _ in range(30):
        begun = Event()
        hung.append(threads.submit(lambda begun=begun: (begun.set(), release.wait(PATIENCE_S))))  # type: ignore[misc]
        begun.wait(0.2)
        threads.set_aside()
    assert len(threads._aside) <= 8
    release.set()
    for one in hung:
        one.result(PATIENCE_S)
    threads.close(wait=True)


def test_closed_threads_take_nothing() -> None:
    threads = IoThreads(2, "closed")
    threads.close()
    with pytest.raises(RuntimeError):
        threads.submit(lambda: None)
