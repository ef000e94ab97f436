"""The store in this process is bounded, forgets, and takes many threads."""

import threading

from canon.memory import LocalStore


def key(n: int) -> bytes:
    return n.to_bytes(32, "big")


def test_bytes_are_bounded_and_the_least_recently_used_goes_first() -> None:
    store = LocalStore(3 * (32 + 100 + 200))
    for n in range(3):
        store.put(key(n), bytes(100))
    assert store.get(key(0)) is not None
    store.put(key(3), bytes(100))
    assert [store.get(key(n)) is not None for n in range(4)] == [True, False, True, True]
    assert store.bytes == 3 * (32 + 100 + 200)


def test_a_record_too_large_is_not_kept_and_removes_what_was_there() -> None:
    store = LocalStore(max_record_bytes=10)
    store.put(key(0), b"small")
    store.put(key(0), bytes(11))
    assert store.get(key(0)) is None
    assert store.bytes == 0


def test_what_is_not_used_for_long_is_forgotten() -> None:
    now = 0.0
    store = LocalStore(ttl_s=10, clock=lambda: now)
    store.put(key(0), b"a")
    store.put(key(1), b"b")
    now = 9.0
    assert store.get(key(0)) == b"a"
    now = 15.0
    assert store.get(key(1)) is None
    assert store.get(key(0)) == b"a"
    assert len(store) == 1


def test_compare_and_put_sets_only_over_what_was_expected() -> None:
    store = LocalStore()
    assert store.compare_and_put(key(0), None, b"a")
    assert not store.compare_and_put(key(0), None, b"b")
    assert store.compare_and_put(key(0), b"a", b"c")
    assert store.get(key(0)) == b"c"


def test_threads_that_count_with_compare_and_put_lose_nothing() -> None:
    store = LocalStore()

    def count() -> None:
        for _ in range(200):
            while True:
                old = store.get(key(0))
                new = str(int(old or b"0") + 1).encode()
                if store.compare_and_put(key(0), old, new):
                    break

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get(key(0)) == b"800"
