"""Threads of a tier that reads and writes side by side, some of which may hang."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST_ASIDE = 8  # pools in which something hangs; with more, whoever comes may have to wait for that


class _Pool:
    """One set of threads, and how many of them are at work."""

    def __init__(self, threads: int, name: str) -> None:
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.busy = 0  # under the lock of who has it


class IoThreads:
    """A thread pool in whose place another one can be put while some of its threads hang."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._name = name
        self._lock = Lock()  # guards what follows
        self._pool = _Pool(threads, name)
        self._aside: list[_Pool] = []

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Do it on one of the threads.

        Raises:
            RuntimeError: they were closed.
        """
        with self._lock:
            pool = self._pool
            return pool.executor.submit(lambda: self._do(pool, lambda: work(*args, **kwargs)))

    def set_aside(self) -> None:
        """Something hangs: if it may be on one of these threads, what comes from now on gets others."""
        with self._lock:
            self._aside = [pool for pool in self._aside if pool.busy]
            if not self._pool.busy or len(self._aside) >= _MOST_ASIDE:
                return
            self._pool.executor.shutdown(wait=False)
            self._aside.append(self._pool)
            self._pool = _Pool(self._threads, self._name)

    def close(self, wait: bool = False) -> None:
        """Begin nothing more; `wait`: until what was begun is over."""
        with self._lock:
            pools = [self._pool, *self._aside]
        for pool in pools:
            pool.executor.shutdown(wait=wait, cancel_futures=True)

    def _do(self, pool: _Pool, work: Callable[[], R]) -> R:
        with self._lock:
            pool.busy += 1
        try:
            return work()
        finally:
            with self._lock:
                pool.busy -= 1
