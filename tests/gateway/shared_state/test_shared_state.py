"""The connection to a real Redis: many calls in order, and a server that is killed and comes back."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.shared_state.errors import AwayError, SharedStateError
from gateway.shared_state.options import RedisOptions
from gateway.shared_state.scripts import Script
from gateway.shared_state.shared_state import SharedState
from tests.ports import free_port
from tests.redis_server import RedisServer
from tests.waiting import PATIENCE_S, steadily

COUNT = Script("return redis.call('INCR', KEYS[1])")


@asynccontextmanager
async def state_of(server: RedisServer, **options: float | str) -> AsyncIterator[SharedState]:
    """One for which a server that is slow because the machine is, is not away, where `options` say no other."""
    chosen = {"password": server.password, "timeout_s": 20, **options}
    state = SharedState(RedisOptions(server.url, **chosen))  # type: ignore[arg-type]
    try:
        yield state
    finally:
        await state.aclose()


@pytest.fixture
def mortal() -> Iterator[RedisServer]:
    with RedisServer.started() as server:
        yield server


@contextmanager
def silent() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


async def until_back(state: SharedState) -> None:
    back = asyncio.Event()
    loop = asyncio.get_running_loop()
    state.circuit.on_return(lambda: loop.call_soon_threadsafe(back.set))
    if state.circuit.away:
        await asyncio.wait_for(back.wait(), PATIENCE_S)


async def counted(state: SharedState) -> int:
    """The next count, of a server that has little time to answer: where the machine is slow, it is asked again."""
    for _ in range(20):
        try:
            return int(await state.pipe.run(COUNT, ["n"]))
        except AwayError:
            await until_back(state)
    raise AssertionError("it is away again and again")


async def test_calls_that_come_together_are_answered_in_their_order(redis_server: RedisServer) -> None:
    async with state_of(redis_server) as state:
        answers = await asyncio.gather(*(state.pipe.run(COUNT, ["n"]) for _ in range(3000)))
    assert answers == list(range(1, 3001))


async def test_what_is_posted_is_done_before_what_is_asked_later(redis_server: RedisServer) -> None:
    async with state_of(redis_server) as state:
        assert all(state.pipe.post(COUNT, ["n"]) for _ in range(10))
        assert await state.pipe.execute("GET", "n") == b"10"


async def test_what_was_posted_last_is_sent_when_the_gateway_ends(redis_server: RedisServer) -> None:
    async with state_of(redis_server) as state:
        state.pipe.post(COUNT, ["n"])
    assert redis_server.client().get("n") == b"1"


async def test_a_call_that_the_server_refuses_fails_alone(redis_server: RedisServer) -> None:
    async with state_of(redis_server) as state:
        wrong, right = await asyncio.gather(
            state.pipe.execute("NOSUCHCOMMAND"), state.pipe.run(COUNT, ["n"]), return_exceptions=True
        )
        assert isinstance(wrong, SharedStateError)
        assert not isinstance(wrong, AwayError)
        assert right == 1
        assert not state.circuit.away


async def test_a_caller_that_gives_up_does_not_shift_the_answers_of_others(redis_server: RedisServer) -> None:
    async with state_of(redis_server) as state:
        tasks = [asyncio.create_task(state.pipe.run(COUNT, [f"n{i % 2}"])) for i in range(200)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        assert await asyncio.gather(*tasks[1::2]) == list(range(1, 101))


async def test_a_killed_server_is_away_at_once_and_back_by_itself_with_its_scripts(
    mortal: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with state_of(mortal) as state:
        assert await state.pipe.run(COUNT, ["n"]) == 1
        mortal.kill()
        with caplog.at_level(logging.WARNING, "kvgate.gateway"):
            for _ in range(50):
                with pytest.raises(AwayError):
                    await state.pipe.run(COUNT, ["n"])
            with pytest.raises(AwayError):
                state.threaded.execute("PING")
            assert not state.pipe.post(COUNT, ["n"])
            mortal.start()
            await until_back(state)
        assert await state.pipe.run(COUNT, ["n"]) == 1  # it forgot all, the script among them
        assert state.threaded.execute("PING") in (b"PONG", True)
        counts = state.circuit.counts()
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "THE SHARED STATE IS AWAY",
        "the shared state is back",
    ]
    assert (counts.away, counts.outages, counts.failed_calls) == (False, 1, 1)


async def test_a_server_that_never_answers_is_waited_for_once(caplog: pytest.LogCaptureFixture) -> None:
    with silent() as url:
        state = SharedState(RedisOptions(url, timeout_s=0.05))
        answers = await asyncio.gather(
            *(state.pipe.run(COUNT, ["n"]) for _ in range(2000)), return_exceptions=True
        )
        assert all(isinstance(answer, AwayError) for answer in answers)
        for call in (
            lambda: state.pipe.run(COUNT, ["n"]),
            lambda: asyncio.to_thread(state.threaded.execute, "PING"),
        ):
            with pytest.raises(AwayError):
                await call()
        assert state.circuit.counts().failed_calls == 1
        await state.aclose()


async def test_a_loop_that_is_held_up_does_not_count_as_a_server_that_is_late(
    redis_server: RedisServer,
) -> None:
    async def held_up() -> None:
        async with state_of(redis_server, timeout_s=0.5) as state:
            await state.pipe.execute("PING")
            for _ in range(2):
                asked = asyncio.create_task(state.pipe.run(COUNT, ["n"]))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                time.sleep(1.5)  # noqa: ASYNC251  that is what is tested
                await asked
            assert state.circuit.counts().outages == 0

    await steadily(held_up, within=3.5)  # twice held up, and less than the server has to answer


async def test_a_wrong_password_is_told_as_being_away_and_never_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with RedisServer.started(password="right-and-long") as server:
        async with state_of(server, password="wrong-and-long") as state:
            with pytest.raises(AwayError):
                await state.pipe.run(COUNT, ["n"])
            assert not state.look()
        async with state_of(server) as state:
            assert await state.pipe.run(COUNT, ["n"]) == 1
            assert state.look()
    assert "wrong-and-long" not in caplog.text
    assert "wrong-and-long" not in repr(state.options)


async def test_a_server_that_is_full_refuses_what_it_is_asked_and_is_not_away(mortal: RedisServer) -> None:
    mortal.client().config_set("maxmemory", "1")
    async with state_of(mortal) as state:
        with pytest.raises(SharedStateError):
            await state.pipe.execute("SET", "n", "1")
        with pytest.raises(SharedStateError):
            state.threaded.execute("SET", "n", "1")
        assert not state.circuit.away


async def test_a_server_that_hangs_is_away_for_everyone_until_it_goes_on(mortal: RedisServer) -> None:
    async with state_of(mortal, timeout_s=1) as state:
        assert await counted(state) >= 1
        failed = state.circuit.counts().failed_calls
        mortal.pause()
        answers = await asyncio.gather(
            *(state.pipe.run(COUNT, ["n"]) for _ in range(500)), return_exceptions=True
        )
        assert all(isinstance(answer, AwayError) for answer in answers)
        with pytest.raises(AwayError):
            state.threaded.execute("PING")
        assert state.circuit.counts().failed_calls == failed + 1
        mortal.go_on()
        await until_back(state)
        assert await counted(state) >= 2


async def test_a_server_that_hangs_is_away_even_where_the_loop_is_always_late(mortal: RedisServer) -> None:
    async with state_of(mortal, timeout_s=0.4) as state:
        await counted(state)
        mortal.pause()
        asked = asyncio.create_task(state.pipe.run(COUNT, ["n"]))
        while not asked.done():
            time.sleep(0.8)  # noqa: ASYNC251
            await asyncio.sleep(0)
        with pytest.raises(AwayError):
            await asked
        mortal.go_on()


async def test_a_server_is_spoken_to_over_tls_and_its_certificate_is_checked(tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path)
    port = free_port()
    flags = ("--tls-port", str(port), "--tls-cert-file", certificate, "--tls-key-file", key)
    with RedisServer.started(flags=(*flags, "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no")):
        url = f"rediss://127.0.0.1:{port}/0"
        for known, there in ((f"{url}?ssl_ca_certs={certificate}", True), (url, False)):
            state = SharedState(RedisOptions(known, timeout_s=20))
            assert state.look() is there
            if there:
                assert await state.pipe.run(COUNT, ["n"]) == 1
                assert state.threaded.execute("GET", "n") == b"1"
            await state.aclose()


def _certificate(folder: Path) -> tuple[str, str]:
    """Of 127.0.0.1, signed by itself; paths of it and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(files[0]), str(files[1])
