"""Bindings that gateways share."""

from canon.memory import LocalStore
from gateway.canonical.shared_memory import SharedMemoryStore
from gateway.responses.bindings import LONGEST_ID, Binding
from gateway.responses.shared_bindings import SharedBindings
from gateway.shared_state.options import RedisOptions
from gateway.shared_state.shared_state import SharedState
from tests.redis_server import RedisServer

HERE = Binding("engine", "a")


async def check(one: SharedBindings, other: SharedBindings) -> None:
    """What `one` binds is known to `other`."""
    await one.bind("t", "resp", HERE)
    await one.bind("t", "x" * (LONGEST_ID + 1), HERE)
    assert await other.find("t", "resp") == HERE
    assert await other.find("u", "resp") is None
    assert await other.find("t", "x" * (LONGEST_ID + 1)) is None
    await other.forget("u", "resp")
    assert await one.find("t", "resp") == HERE
    await other.forget("t", "resp")
    assert await one.find("t", "resp") is None
    await one.bind("t", "resp", HERE)
    await one.bind("u", "resp", Binding("engine", "b"))
    assert await other.forget_tenant("t") >= 1
    assert await one.find("t", "resp") is None
    assert await one.find("u", "resp") == Binding("engine", "b")


async def test_processes_find_what_others_bound() -> None:
    store = LocalStore(1 << 20)
    await check(SharedBindings(store), SharedBindings(store))


async def test_gateways_find_what_others_bound_in_redis() -> None:
    with RedisServer.started() as server:
        options = RedisOptions(server.url, timeout_s=20)
        states = [SharedState(options), SharedState(options)]
        try:
            one, other = (
                SharedBindings(SharedMemoryStore(state, LocalStore(1 << 20), ttl_s=60)) for state in states
            )
            await check(one, other)
            server.kill()
            await one.bind("t", "alone", HERE)
            assert await one.find("t", "alone") == HERE
            assert await other.find("t", "alone") is None
        finally:
            for state in states:
                state.close()


async def test_what_another_key_holds_is_not_taken_for_it(monkeypatch) -> None:
    """Also where two names had one hash."""
    store = LocalStore(1 << 20)
    bindings = SharedBindings(store)
    monkeypatch.setattr("gateway.responses.shared_bindings._key", lambda tenant, response: b"same")
    await bindings.bind("t", "resp", HERE)
    assert await bindings.find("u", "resp") is None
    assert await bindings.find("t", "other") is None
