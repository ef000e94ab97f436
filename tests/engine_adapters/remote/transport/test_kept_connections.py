"""A connection that its server closes costs no request; a server that breaks at one is not asked again."""

import asyncio

import pytest

from engine_adapters.remote.transport import BrokenError, TooSlowError, TransportError
from tests.engine_adapters.remote.transport.raw_server import answering, asked, request, served, whole
from tests.waiting import steadily, until


class Closing:
    """Answers so many requests a connection, and closes it at the next one without a word."""

    def __init__(self, answers: int, pause_s: float = 0.0) -> None:
        self._answers, self._pause_s = answers, pause_s
        self.requests = self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for count in range(self._answers + 1):
            if not await request(reader):
                break
            self.requests += 1
            if count < self._answers:
                writer.write(whole(b"ok"))
        await asyncio.sleep(self._pause_s)
        writer.close()


async def test_a_request_that_meets_the_end_of_a_kept_connection_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine_adapters.remote.transport.client._AT_ONCE", 60.0)
    server = Closing(answers=1)
    async with served(server.serve) as (client, url):
        assert [await asked(client, url) for _ in range(3)] == [b"ok"] * 3
    assert server.requests == 5  # the second and the third met an end


async def test_a_server_that_breaks_on_a_connection_of_the_request_s_own_is_asked_once() -> None:
    server = Closing(answers=0)
    async with served(server.serve) as (client, url):
        with pytest.raises(BrokenError):
            await asked(client, url)
    assert server.requests == 1


async def test_a_server_that_breaks_after_a_while_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_adapters.remote.transport.client._AT_ONCE", 0.05)
    server = Closing(answers=1, pause_s=0.2)
    async with served(server.serve) as (client, url):
        assert await asked(client, url) == b"ok"
        with pytest.raises(BrokenError):
            await asked(client, url)
    assert server.requests == 2


async def test_a_kept_connection_that_breaks_inside_its_answer_is_not_asked_again() -> None:
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        while await request(reader):
            requests += 1
            if requests == 2:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")
                break
            writer.write(whole(b"ok"))
        writer.close()

    async with served(serve) as (client, url):
        assert await asked(client, url) == b"ok"
        with pytest.raises(BrokenError):
            await asked(client, url)
    assert requests == 2


async def test_requests_go_over_one_connection() -> None:
    async def ask() -> None:
        server = Closing(answers=100)
        async with served(server.serve) as (client, url):
            for _ in range(5):
                assert await asked(client, url) == b"ok"
        assert server.connections == 1

    await steadily(ask, within=3.0)  # for which one may idle


async def test_an_idle_connection_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine_adapters.remote.transport.client._IDLE_S", 0.5)
    server = Closing(answers=100)
    async with served(server.serve) as (client, url):
        assert await asked(client, url) == b"ok"
        await until(lambda: not client.open, "an idle connection is ended")
        assert await asked(client, url) == b"ok"
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [whole(b"ok", "connection: close"), b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", whole(b"ok") + whole(b"2")],
    ids=["close", "1.0", "more than was asked for"],
)  # fmt: skip
async def test_a_connection_that_may_not_be_kept_is_not_used_again(answer: bytes) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(answer)(reader, writer)

    async with served(serve) as (client, url):
        assert [await asked(client, url) for _ in range(3)] == [b"ok"] * 3
    assert connections == 3


async def test_as_many_connections_as_may_be_and_no_more() -> None:
    free = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await request(reader):
            await free.wait()
            writer.write(whole(b"ok"))

    async with served(serve, connections=2, free_s=0.05) as (client, url):
        running = [asyncio.create_task(asked(client, url)) for _ in range(2)]
        await until(lambda: client.open == 2, "both are connected")
        with pytest.raises(TransportError, match="all 2 connections"):
            await asked(client, url)
        free.set()
        assert await asyncio.gather(*running) == [b"ok"] * 2
        assert await asked(client, url) == b"ok"  # places are given back


async def test_each_request_on_a_kept_connection_has_a_wait_of_its_own() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for pause_s in (0.0, 1.5, 60.0):
            await request(reader)
            await asyncio.sleep(pause_s)
            writer.write(whole(b"ok"))

    async def ask() -> None:
        async with served(serve, read_s=3.0) as (client, url):
            assert await asked(client, url) == b"ok"
            await asyncio.sleep(2.0)
            assert await asked(client, url) == b"ok"  # the first one's time is over in its middle
            with pytest.raises(TooSlowError):
                await asked(client, url)
            assert client.open == 0

    await steadily(ask, within=4.5)  # until the second answer, of which it waits less than 3 s
