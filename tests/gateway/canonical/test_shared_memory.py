"""The memory in Redis keeps the contract of the one in this process, is shared, forgets, and outlives outages."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canon
from canon.memory import LocalStore, MemoryStore
from canon.memory.scoped_store import ScopedStore
from gateway.canonical.seal import Seal
from gateway.canonical.shared_memory import SharedMemoryStore
from gateway.shared_state.errors import SharedStateError
from gateway.shared_state.options import RedisOptions
from gateway.shared_state.shared_state import SharedState
from tests.redis_server import RedisServer
from tests.waiting import wait_until

SEAL = Seal(b"a secret that is long enough")


def key(n: int) -> bytes:
    return n.to_bytes(32, "big")


@contextmanager
def shared(server: RedisServer, **options: object) -> Iterator[SharedMemoryStore]:
    state = SharedState(RedisOptions(server.url, timeout_s=20))  # a machine that is slow is not away
    try:
        yield SharedMemoryStore(state, LocalStore(), **{"ttl_s": 60.0, **options})  # type: ignore[arg-type]
    finally:
        state.close()


@pytest.fixture(params=["local", "redis", "sealed"])
def store(request: pytest.FixtureRequest) -> Iterator[MemoryStore]:
    if request.param == "local":
        yield LocalStore(max_record_bytes=1000)
        return
    seal = SEAL if request.param == "sealed" else None
    server = request.getfixturevalue("redis_server")
    with shared(server, max_record_bytes=1000, seal=seal) as found:
        yield found


def test_what_was_put_is_there_byte_for_byte(store: MemoryStore) -> None:
    for n, value in enumerate((b"", b"\0\xff\r\n", bytes(range(256)), b"x" * 1000)):
        assert store.get(key(n)) is None
        store.put(key(n), value)
        assert store.get(key(n)) == value


def test_a_record_too_large_is_not_kept_and_removes_what_was_there(store: MemoryStore) -> None:
    store.put(key(0), b"small")
    store.put(key(0), bytes(1001))
    assert store.get(key(0)) is None
    store.put(key(1), b"small")
    assert store.compare_and_put(key(1), b"small", bytes(1001))
    assert store.get(key(1)) is None


def test_compare_and_put_sets_only_over_what_was_expected(store: MemoryStore) -> None:
    assert store.compare_and_put(key(0), None, b"a")
    assert not store.compare_and_put(key(0), None, b"b")
    assert not store.compare_and_put(key(0), b"b", b"c")
    assert store.compare_and_put(key(0), b"a", b"")
    assert store.compare_and_put(key(0), b"", b"c")
    assert not store.compare_and_put(key(1), b"", b"c")
    assert store.get(key(0)) == b"c"


def test_threads_that_count_with_compare_and_put_lose_nothing(store: MemoryStore) -> None:
    def count() -> None:
        for _ in range(50):
            while True:
                old = store.get(key(0))
                if store.compare_and_put(key(0), old, str(int(old or b"0") + 1).encode()):
                    break

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get(key(0)) == b"200"


def test_a_scope_is_forgotten_as_a_whole_and_others_stay(store: MemoryStore) -> None:
    scopes = [ScopedStore(store, name) for name in ("a/m", "a/n", "*", "[a]?")]
    for scope in scopes:
        for n in range(50):
            scope.put(key(n), b"v")
    assert scopes[2].forget() == 50
    assert [scope.get(key(7)) for scope in scopes] == [b"v", b"v", None, b"v"]
    assert scopes[0].forget() == 50
    assert scopes[0].forget() == 0
    assert scopes[1].get(key(7)) == b"v"


def test_what_is_not_used_for_long_is_forgotten(redis_server: RedisServer) -> None:
    client = redis_server.client()
    with shared(redis_server, ttl_s=100.0) as store:
        store.put(key(0), b"used")
        (used,) = client.keys("*")
        store.put(key(1), b"not used")
        assert all(0 < client.pttl(name) <= 100_000 for name in client.keys("*"))
        for name in client.keys("*"):
            client.pexpire(name, 20_000)  # as if 80 seconds had gone by
        assert store.get(key(0)) == b"used"
        assert client.pttl(used) > 20_000
        client.pexpire(next(name for name in client.keys("*") if name != used), 1)
        wait_until(lambda: client.keys("*") == [used], "what was not used is gone")
        assert store.get(key(1)) is None
        assert store.get(key(0)) == b"used"


def test_two_gateways_see_one_memory(redis_server: RedisServer) -> None:
    with shared(redis_server) as one, shared(redis_server) as two:
        one.put(key(0), b"of one")
        assert two.get(key(0)) == b"of one"


def test_sealed_records_show_nothing_and_are_of_their_key_and_secret_only(redis_server: RedisServer) -> None:
    text = b"a prompt that nobody else may read"
    with shared(redis_server, seal=SEAL) as store:
        store.put(key(0), text)
        store.put(key(1), text)
        client = redis_server.client()
        names = sorted(client.keys("*"))
        stored = [client.get(name) for name in names]
        assert all(text[:8] not in value for value in stored)
        assert stored[0] != stored[1]
        client.set(names[1], stored[0])  # moved by who can write there
        assert store.get(key(1)) is None
    with shared(redis_server, seal=Seal(b"another secret, also long")) as other:
        assert other.get(key(0)) is None
        assert other.compare_and_put(key(0), None, b"new")


@settings(max_examples=50)
@given(value=st.binary(max_size=200), at=st.integers(0, 400))
def test_a_sealed_value_that_was_changed_anywhere_is_none(value: bytes, at: int) -> None:
    stored = bytearray(SEAL.close(b"k", value))
    assert SEAL.open(b"k", bytes(stored)) == value
    stored[at % len(stored)] ^= 1
    assert SEAL.open(b"k", bytes(stored)) is None


def test_while_redis_is_away_the_memory_goes_on_and_hands_over_what_is_new() -> None:
    with RedisServer.started(keep=True) as server, shared(server) as one, shared(server) as two:
        one.put(key(0), b"before")
        server.kill()
        assert one.get(key(0)) is None
        assert one.compare_and_put(key(1), None, b"while away")
        one.put(key(2), b"of one")
        two.put(key(2), b"of two")
        assert one.get(key(1)) == b"while away"
        with pytest.raises(SharedStateError):
            one.forget(b"no such prefix")
        server.start()
        both = (b"of one", b"of two")
        wait_until(
            lambda: not len(one._local) and not len(two._local) and two.get(key(2)) in both, "all is told"
        )
        assert [two.get(key(n)) for n in (0, 1)] == [b"before", b"while away"]
        assert one.get(key(2)) == two.get(key(2))


def test_a_redis_that_is_full_is_done_without() -> None:
    with RedisServer.started() as server, shared(server) as store:
        server.client().config_set("maxmemory", "1")
        store.put(key(0), b"kept here")
        assert store.get(key(0)) == b"kept here"
        assert store.compare_and_put(key(0), b"kept here", b"still")
        assert store.get(key(0)) == b"still"


@pytest.mark.parametrize("seal", [None, SEAL])
def test_two_gateways_rewrite_one_conversation_alike(redis_server: RedisServer, seal: Seal | None) -> None:
    """As one gateway with a memory of its own does, whichever of the two gets a turn."""
    with shared(redis_server, seal=seal) as one, shared(redis_server, seal=seal) as two:
        alone = canon.ConversationMemory(all_recorded=True)
        both = [canon.ConversationMemory(each, all_recorded=True) for each in (one, two)]
        sent = _converse(lambda turn: alone)
        assert any("14:0" in str(body) for body in sent)
        assert _converse(lambda turn: both[turn % 2]) == sent
        assert _converse(lambda turn: both[turn // 2 % 2], session="other") == _converse(
            lambda turn: alone, session="other"
        )


def test_a_turn_asks_a_few_times_and_not_once_for_each_turn_before(redis_server: RedisServer) -> None:
    with shared(redis_server) as store:
        memory = canon.ConversationMemory(store, all_recorded=True)
        _converse(lambda _: memory, turns=30)
        client = redis_server.client()
        client.config_resetstat()
        _converse(lambda _: memory, turns=30)
        reads = client.info("commandstats")
        assert reads["cmdstat_getex"]["calls"] < 30 * 12


def test_what_is_read_ahead_is_what_is_there(redis_server: RedisServer) -> None:
    """Others write between bursts, and this thread within one: both are seen."""
    with shared(redis_server, seal=SEAL) as store, shared(redis_server, seal=SEAL) as other:
        for value in (b"one", b"two"):
            with store.burst():
                assert [store.get(key(n)) for n in range(5)] == (
                    [None] * 5 if value == b"one" else [b"one"] * 5
                )
                store.put(key(3), value)
                assert store.get(key(3)) == value
                assert store.compare_and_put(key(4), b"one" if value == b"two" else None, b"mine")
                assert store.get(key(4)) == b"mine"
            for n in range(5):
                other.put(key(n), b"one")
        with store.burst():
            assert not store.compare_and_put(key(2), b"mine", b"x")
            assert [store.get(key(n)) for n in range(5)] == [b"one"] * 5


def _converse(
    memory: Callable[[int], canon.ConversationMemory], session: str = "", turns: int = 5
) -> list[object]:
    """Turns of a client whose system text has a clock; what was sent in each."""
    messages: list[dict[str, object]] = [{"role": "system", "content": ""}]
    sent: list[object] = []
    for turn in range(turns):
        messages[0]["content"] = f"You help.\nCurrent time: 2026-03-01 14:{turn:02}:00\nBe brief."
        messages.append({"role": "user", "content": f"question {turn}"})
        body = {"model": "m", "messages": [dict(each) for each in messages]}
        with memory(turn).store.burst():
            result = canon.canonicalize(body, "full", memory(turn), "scope", session=session)
        sent.append(result.body)
        answer = {"role": "assistant", "content": f"answer {turn}"}
        memory(turn).record(body, {"choices": [{"index": 0, "message": answer}]}, "scope", session)
        messages.append(answer)
    return sent
