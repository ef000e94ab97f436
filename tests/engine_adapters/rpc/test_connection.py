"""Two processes' connection, both ends on one loop: answers, streams, bounds, ends."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.errors import ContextLengthError, EngineOverloadedError
from engine_adapters.rpc.blocking import BlockingClient
from engine_adapters.rpc.connection import MORE, WINDOW, Connection, connect
from engine_adapters.rpc.errors import AwayError, FailedError
from engine_adapters.rpc.link import Link
from engine_adapters.rpc.server import Server
from engine_adapters.rpc.service import Service
from tests.waiting import PATIENCE_S, until


class Offered:
    """What the tests call, and how it was left."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.given = 0
        self.left = asyncio.Event()
        self.never = asyncio.Event()
        self.gone: list[Connection] = []

    def service(self) -> Service:
        calls = {
            "add": lambda _, a, b: a + b,
            "later": self.later,
            "fails": self.fails,
            "too_long": self.too_long,
            "hear": lambda _, what: self.heard.append(what),
            "hangs": lambda _: self.hangs(),
            "unsendable": lambda _: object(),
        }
        return Service(calls, {"count": self.count, "breaks": self.breaks}, self.gone.append)

    async def later(self, _: Connection, value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    def fails(self, _: Connection) -> None:
        raise KeyError("the secret prompt")

    async def too_long(self, _: Connection) -> None:
        raise ContextLengthError("too long", prompt_tokens=9, limit=8, param="prompt")

    async def hangs(self) -> None:
        try:
            await self.never.wait()
        finally:
            self.left.set()

    async def count(self, _: Connection, upto: int) -> AsyncGenerator[int, None]:
        try:
            for number in range(upto):
                self.given += 1
                yield number
        finally:
            self.left.set()

    async def breaks(self, _: Connection) -> AsyncGenerator[int, None]:
        yield 1
        raise EngineOverloadedError("too many")


@pytest.fixture
def offered() -> Offered:
    return Offered()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    return folder / "a.sock"


@pytest.fixture
async def server(offered: Offered, path: Path) -> AsyncIterator[Server]:
    server = await Server(offered.service()).listen(path)
    yield server
    server.close()


@pytest.fixture
async def client(server: Server, path: Path) -> AsyncIterator[Connection]:
    connection = await connect(str(path))
    yield connection
    connection.close()


async def all_of(connection: Connection, name: str, *args: Any) -> list[Any]:
    return [item async for batch in connection.stream(name, *args) for item in batch]


async def test_calls_are_answered_each_with_its_own_value(client: Connection) -> None:
    answers = await asyncio.gather(
        *(client.call("add", n, n) for n in range(50)), client.call("later", b"\0\xff")
    )
    assert answers == [*(2 * n for n in range(50)), b"\0\xff"]


async def test_an_engines_error_arrives_as_what_it_is(client: Connection) -> None:
    with pytest.raises(ContextLengthError) as caught:
        await client.call("too_long")
    assert (caught.value.prompt_tokens, caught.value.limit, caught.value.param) == (9, 8, "prompt")


async def test_of_a_foreign_error_only_its_kind_crosses(client: Connection) -> None:
    with pytest.raises(FailedError) as caught:
        await client.call("fails")
    assert "KeyError" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["nothing", "unsendable"])
async def test_what_cannot_be_answered_fails_and_the_connection_goes_on(
    client: Connection, name: str
) -> None:
    with pytest.raises(FailedError):
        await client.call(name)
    assert await client.call("add", 1, 2) == 3


async def test_a_message_arrives_before_the_call_behind_it(client: Connection, offered: Offered) -> None:
    client.tell("hear", "a")
    client.tell("nothing of that name")
    assert await client.call("add", 1, 1) == 2
    assert offered.heard == ["a"]


async def test_a_stream_comes_whole_and_in_order_however_long(client: Connection) -> None:
    count = 5 * WINDOW + 3
    assert await all_of(client, "count", count) == list(range(count))


async def test_items_of_one_turn_come_together(client: Connection) -> None:
    batches = [batch async for batch in client.stream("count", 100)]
    assert len(batches) < 10


async def test_a_stream_ends_with_its_error_behind_its_items(client: Connection) -> None:
    got = []
    with pytest.raises(EngineOverloadedError, match="too many"):  # noqa: PT012
        async for batch in client.stream("breaks"):
            got += batch
    assert got == [1]


async def test_who_does_not_read_holds_the_sender_at_the_window(client: Connection, offered: Offered) -> None:
    async with aclosing(client.stream("count", 100 * WINDOW)) as batches:
        await anext(batches)
        for _ in range(10):
            await client.call("add", 1, 1)  # another call is not held up
        assert offered.given <= WINDOW + 1
    await asyncio.wait_for(offered.left.wait(), PATIENCE_S)


async def test_closing_a_stream_cancels_it_there(client: Connection, offered: Offered) -> None:
    async with aclosing(client.stream("count", 100 * WINDOW)) as batches:
        await anext(batches)
    await asyncio.wait_for(offered.left.wait(), PATIENCE_S)
    assert offered.given < 2 * WINDOW
    assert await client.call("add", 1, 1) == 2


async def test_a_call_nobody_waits_for_is_cancelled_there(client: Connection, offered: Offered) -> None:
    with pytest.raises(AwayError, match="was not answered within"):
        await client.call("hangs", timeout_s=0.05)
    await asyncio.wait_for(offered.left.wait(), PATIENCE_S)


async def test_when_a_reader_goes_all_that_runs_for_it_is_cancelled(
    client: Connection, offered: Offered
) -> None:
    async with aclosing(client.stream("count", 100 * WINDOW)) as batches:
        await anext(batches)
        client.close()
        await asyncio.wait_for(offered.left.wait(), PATIENCE_S)
        assert len(offered.gone) == 1
        with pytest.raises(AwayError):
            async for _ in batches:
                pass


async def test_when_the_server_goes_calls_that_wait_fail(client: Connection, server: Server) -> None:
    calls = [asyncio.create_task(client.call("hangs")) for _ in range(3)]
    await client.call("add", 1, 1)
    server.close()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results] == [AwayError] * 3
    with pytest.raises(AwayError):
        await client.call("add", 1, 1)


async def test_a_server_can_call_back(server: Server, path: Path) -> None:
    connection = await connect(str(path), Service({"who": lambda _: "me"}))
    await connection.call("add", 1, 1)
    (its,) = server.connections
    assert await its.call("who") == "me"
    connection.close()


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\1\x05", b"\0\0\0\2\x91\x63", b"\0\0\0\4\x93\x00\x01\x02"],
    ids=["too large", "no MessagePack", "no list", "unknown kind", "wrong types"],
)
async def test_who_sends_no_frames_is_cut_and_others_are_not(
    client: Connection, path: Path, data: bytes
) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    writer.close()
    assert await client.call("add", 1, 1) == 2


async def test_credit_for_a_stream_that_is_over_does_nothing(client: Connection) -> None:
    await all_of(client, "count", 3)
    client._send([MORE, 1, 10])
    assert await client.call("add", 1, 1) == 2


def mode(path: Path) -> int:
    return path.stat().st_mode


async def test_only_this_user_reaches_the_socket(server: Server, path: Path) -> None:
    assert mode(path) & 0o077 == 0


async def test_a_folder_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    with pytest.raises(PermissionError):
        await Server(Service()).listen(tmp_path / "a.sock")


async def test_a_link_comes_back_and_greets_again(offered: Offered, path: Path) -> None:
    greeted = []

    async def greet(connection: Connection) -> None:
        greeted.append(await connection.call("add", 1, 1))

    link = Link(str(path), "the other", greet)
    with pytest.raises(AwayError):
        await link.call("add", 1, 1)
    link.start()
    first = await Server(offered.service()).listen(path)
    await link.there(PATIENCE_S)
    assert await link.call("add", 2, 2) == 4
    first.close()
    await until(lambda: not link.is_there, "it has gone")
    second = await Server(offered.service()).listen(path)
    await until(lambda: link.is_there, "it is back")
    assert await link.call("add", 2, 3) == 5
    assert greeted == [2, 2]
    await link.aclose()
    assert not link.is_there
    second.close()


async def test_a_process_that_hangs_holds_nobody_up_twice(offered: Offered, path: Path) -> None:
    link = Link(str(path), "the other")
    link.start()
    deaf = await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, str(path))
    await link.there(PATIENCE_S)
    with pytest.raises(AwayError, match="not answered"):
        await link.call("add", 1, 1, timeout_s=0.05)
    assert not link.is_there
    with pytest.raises(AwayError, match="does not answer"):
        await link.call("add", 1, 1, timeout_s=None)
    assert link._current is not None
    link._current.close()
    deaf.close()
    server = await Server(offered.service()).listen(path)
    await until(lambda: link.is_there, "it is back")
    with pytest.raises(AwayError, match="not answered"):
        await link.call("hangs", timeout_s=0.05)
    await until(lambda: link.is_there, "it is back")
    assert await link.call("add", 1, 1) == 2
    await link.aclose()
    server.close()


async def test_threads_call_and_wait(server: Server, path: Path) -> None:
    client = BlockingClient(str(path), timeout_s=PATIENCE_S)

    def calls(number: int) -> list[int]:
        return [client.call("add", number, each) for each in range(100)]

    found = await asyncio.gather(*(asyncio.to_thread(calls, n) for n in range(4)))
    assert found == [[n + each for each in range(100)] for n in range(4)]
    with pytest.raises(ContextLengthError):
        await asyncio.to_thread(client.call, "too_long")
    assert len(server.connections) <= 5
    client.close()


async def test_threads_find_a_server_that_was_started_again(offered: Offered, path: Path) -> None:
    client = BlockingClient(str(path), timeout_s=PATIENCE_S)
    first = await Server(offered.service()).listen(path)
    assert await asyncio.to_thread(client.call, "add", 1, 1) == 2
    first.close()
    second = await Server(offered.service()).listen(path)
    assert await asyncio.to_thread(client.call, "add", 1, 2) == 3
    client.close()
    second.close()


async def test_a_server_that_hangs_holds_a_thread_up_once(path: Path) -> None:
    now = 0.0
    client = BlockingClient(str(path), timeout_s=0.05, clock=lambda: now)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
        deaf.bind(os.fspath(path))
        deaf.listen()
        with pytest.raises(AwayError, match="not answered"):
            await asyncio.to_thread(client.call, "add", 1, 1)
        with pytest.raises(AwayError, match="a moment ago"):
            client.call("add", 1, 1)
        now = 5.0
        with pytest.raises(AwayError, match="not answered"):
            await asyncio.to_thread(client.call, "add", 1, 1)
