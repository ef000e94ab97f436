"""Answers of every form arrive as they came; what is no whole answer is an error, in time, and is cut off."""

import asyncio
import gzip
import itertools
import zlib
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.remote.transport import (
    BrokenError,
    EngineClient,
    NoConnectionError,
    TooSlowError,
    TransportError,
)
from engine_adapters.remote.transport.exchange import Exchange
from engine_adapters.remote.transport.target import Target
from tests.engine_adapters.remote.transport.raw_server import BOUNDS, answering, asked, request, served, whole
from tests.waiting import PATIENCE_S, steadily, until

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b"data: 1\n\ndata: 22\n\ndata: [DONE]\n\n"


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


FORMS: Mapping[str, bytes] = {
    "length": whole(BODY),
    "chunks": CHUNKED + chunked(BODY, 7),
    "until the end": b"HTTP/1.1 200 OK\r\n\r\n" + BODY,
    "after 100 and 103": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + whole(BODY),
    "trailers": CHUNKED + chunked(BODY, 9)[:-2] + b"x-end: 1\r\n\r\n",
    "gzip": whole(gzip.compress(BODY), "content-encoding: gzip"),
    "deflate": whole(zlib.compress(BODY), "content-encoding: deflate"),
}  # fmt: skip


class Line:
    """A connection that only notes what it is told."""

    def __init__(self) -> None:
        self.frees: list[bool] = []
        self.cuts = 0
        self.held = False

    def hold(self, on: bool) -> None:
        self.held = on

    def watch(self, until: float) -> None:
        pass

    def cut(self) -> None:
        self.cuts += 1

    def free(self, *, keep: bool) -> None:
        self.frees.append(keep)


@settings(max_examples=150, deadline=None)
@given(form=st.sampled_from(sorted(FORMS)), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_an_answer_is_the_same_however_it_is_split(form: str, cuts: list[int]) -> None:
    answer, line = FORMS[form], Line()

    async def read() -> bytes:
        exchange = Exchange(line, 5, asyncio.get_running_loop())
        at = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
        for start, end in itertools.pairwise(at):
            exchange.received(answer[start:end])
        if form == "until the end":
            exchange.ended()
        assert exchange.head_by(0.0) is None
        assert exchange.status == 200
        assert not {"link", "x-end"} & exchange.headers.keys()
        return await exchange.read()

    assert asyncio.run(read()) == BODY
    assert line.frees == [form != "until the end"]


@settings(max_examples=100, deadline=None)
@given(form=st.sampled_from(["length", "chunks", "gzip"]), end=st.integers(0, 300))
def test_an_answer_that_is_cut_anywhere_is_broken(form: str, end: int) -> None:
    answer, line = FORMS[form], Line()

    async def read() -> None:
        exchange = Exchange(line, 5, asyncio.get_running_loop())
        exchange.received(answer[: min(end, len(answer) - 1)])
        exchange.ended()
        assert exchange.head_by(0.0) is None
        await exchange.read()

    with pytest.raises(BrokenError):
        asyncio.run(read())
    assert line.frees == [False]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=60), max_size=5))
def test_whatever_an_engine_sends_ends_in_an_answer_or_an_error(sent: list[bytes]) -> None:
    line = Line()

    async def read() -> None:
        exchange = Exchange(line, 5, asyncio.get_running_loop())
        for part in sent:
            exchange.received(part)
        exchange.ended()
        try:
            assert exchange.head_by(0.0) is None
            await exchange.read()
        except TransportError:
            pass
        exchange.close()

    asyncio.run(read())
    assert len(line.frees) == 1


async def test_chunks_arrive_one_by_one() -> None:
    parts = [CHUNKED, b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"]
    async with served(answering(*parts, pause_s=0.05)) as (client, url):
        exchange = await client.ask("POST", url, b"body", {})
        assert [chunk async for chunk in exchange.chunks()] == [b"one", b"two"]
        exchange.close()


async def test_repeated_headers_are_joined_and_names_are_in_lower_case() -> None:
    async with served(answering(whole(b"", "X-A: 1", "x-a: 2"))) as (client, url):
        exchange = await client.ask("POST", url, b"body", {})
        assert exchange.headers["x-a"] == "1, 2"
        exchange.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 400_000,
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        whole(b"xx", "content-encoding: br"),
        whole(b"no gzip", "content-encoding: gzip"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["no HTTP", "endless head", "upgrade", "br", "no gzip", "no chunk"],
)
async def test_what_is_no_answer_is_broken_and_gives_its_place_back(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(answering(answer), connections=1, free_s=0.5) as (client, url):
        for _ in range(2):
            with pytest.raises(BrokenError):
                await asked(client, url)
    assert (
        not caplog.records
    )  # such as a protocol's own errors, which the event loop logs with all that was there


async def test_a_byte_that_does_not_come_is_waited_for_so_long_and_no_longer() -> None:
    async with served(answering(CHUNKED, b"3\r\none\r\n", pause_s=60), read_s=1) as (client, url):
        exchange = await client.ask("POST", url, b"body", {})
        with pytest.raises(TooSlowError):
            await exchange.read()
        exchange.close()


async def test_a_head_that_comes_byte_by_byte_has_no_more_time_than_one_that_does_not_come() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not writer.is_closing():
            writer.write(b"x-a: b\r\n")
            await asyncio.sleep(0.02)

    async with served(serve, read_s=0.2) as (client, url):
        with pytest.raises(TooSlowError, match="head"):
            await asyncio.wait_for(asked(client, url), PATIENCE_S)


async def test_each_byte_has_its_own_time() -> None:
    parts = [CHUNKED, *[b"1\r\nx\r\n"] * 8, b"0\r\n\r\n"]

    async def ask() -> bytes:
        async with served(answering(*parts, pause_s=0.3), read_s=2) as (client, url):
            return await asked(client, url)

    assert await steadily(ask, within=4.0) == b"x" * 8  # nine pauses, and one of 1.3 s more


async def test_an_engine_that_takes_no_byte_is_too_slow() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(600)

    async with served(serve, write_s=0.1) as (client, url):
        with pytest.raises(TooSlowError, match="takes no byte"):
            await asked(client, url, b"x" * (32 << 20))


async def test_an_engine_that_answers_before_it_has_read_all_is_heard() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(whole(b"too large", status="413 Too Large"))
        await asyncio.sleep(600)

    async with served(serve, write_s=PATIENCE_S) as (client, url):
        async with asyncio.timeout(PATIENCE_S / 2):
            exchange = await client.ask("POST", url, b"x" * (32 << 20), {})
        assert (exchange.status, await exchange.read()) == (413, b"too large")
        exchange.close()


async def test_nobody_there() -> None:
    client = EngineClient(BOUNDS)
    with pytest.raises(NoConnectionError):
        await client.ask("POST", "http://127.0.0.1:1/", b"", {})


@pytest.mark.parametrize("when", ["before the head", "in the body"])
async def test_leaving_cuts_the_connection(when: str) -> None:
    there, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        there.set()
        if when == "in the body":
            writer.write(CHUNKED + b"3\r\none\r\n")
        assert await reader.read() == b""
        gone.set()

    async with served(serve, connections=1) as (client, url):
        task = asyncio.create_task(asked(client, url))
        await asyncio.wait_for(there.wait(), PATIENCE_S)
        await asyncio.sleep(0.05)  # for what it says, which makes no difference
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(gone.wait(), PATIENCE_S)
        assert not client.open


async def test_closing_the_client_breaks_what_runs() -> None:
    async with served(answering(CHUNKED, b"", b"", pause_s=600)) as (client, url):
        running = asyncio.create_task(asked(client, url))
        await until(lambda: client.open, "it is connected")
        await client.aclose()
        with pytest.raises(BrokenError):
            await running
        with pytest.raises(NoConnectionError):
            await asked(client, url)


async def test_a_slow_reader_slows_the_engine() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        for _ in range(100):
            writer.write(b"x" * 1_000_000)
            await writer.drain()
            sent += 1_000_000

    async with served(serve) as (client, url):
        exchange = await client.ask("POST", url, b"body", {})
        await asyncio.sleep(0.3)
        assert sent < 50_000_000
        assert len(await exchange.read()) == 100_000_000
        exchange.close()


async def test_a_packed_answer_is_unpacked_in_parts() -> None:
    packed = gzip.compress(bytes(20 << 20))
    async with served(answering(whole(packed, "content-encoding: gzip"))) as (client, url):
        exchange = await client.ask("POST", url, b"body", {})
        sizes = [len(chunk) async for chunk in exchange.chunks()]
        exchange.close()
    assert sum(sizes) == 20 << 20
    assert max(sizes) <= 1 << 20


def test_the_head_of_a_request() -> None:
    target = Target("POST", "http://[::1]:9/v1/chat?a=b", {"Authorization": "Bearer k", "x-v": "1"})
    assert target.head(3, {"x-v": "2"}) == (
        b"POST /v1/chat?a=b HTTP/1.1\r\nhost: [::1]:9\r\nauthorization: Bearer k\r\n"
        b"x-v: 2\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n"
    )
    assert Target("POST", "https://engine/v1", {}).origin.name == "engine"
    assert Target("GET", "http://e/x", {}).head(0, {}) == b"GET /x HTTP/1.1\r\nhost: e\r\n\r\n"
    assert b"content-length: 0" in Target("POST", "http://e/x", {}).head(0, {})


@pytest.mark.parametrize("value", ["a\r\nx: b", "a\nb", "a\0"])
def test_a_header_cannot_bring_another_one(value: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        Target("POST", "http://e/", {}).head(0, {"x-a": value})
