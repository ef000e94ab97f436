"""Streams on the wire: failures in the middle, clients that go, read slowly or wait long."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from engine_adapters.base import Finished, TextDelta
from engine_adapters.errors import EngineFailureError, EngineNotReadyError
from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL, hello, usage_of
from tests.waiting import PATIENCE_S, wait_until

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def body(path: str, **fields: Any) -> dict[str, Any]:
    prompt = {"prompt": "Hi"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "Hi"}]}
    return {"model": MODEL, **prompt, **fields}


def request_bytes(path: str, payload: dict[str, Any]) -> bytes:
    raw = json.dumps(payload).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


def connect(server: Running, receive_buffer: int | None = None) -> socket.socket:
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(PATIENCE_S)
    client.connect(("127.0.0.1", server.port))
    return client


def read_to_end(client: socket.socket) -> bytes:
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data


@pytest.fixture
def client(server: Running) -> Iterator[socket.socket]:
    with connect(server) as it:
        yield it


async def speak_then_hang(request):
    yield TextDelta(0, "Hello")
    await asyncio.Event().wait()


async def hang(request):
    await asyncio.Event().wait()
    yield


def failing(error: Exception):
    async def script(request):
        yield TextDelta(0, "Hello")
        await asyncio.sleep(0.02)
        yield TextDelta(0, " there")
        raise error

    return script


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineFailureError("secret"), "engine_failure"),
        (EngineNotReadyError("it stops"), "engine_not_ready"),
        (ZeroDivisionError("secret"), "internal_error"),
    ],
    ids=["engine failure", "engine stops", "unexpected"],
)
def test_a_failure_in_the_middle_is_an_error_event_and_never_a_clean_end(
    server: Running, client: socket.socket, path: str, error: Exception, code: str
) -> None:
    server.engine.script = failing(error)
    client.sendall(request_bytes(path, body(path, stream=True)))
    data = read_to_end(client)
    assert data.startswith(b"HTTP/1.1 200 ")
    assert b"Hello" in data
    assert b"[DONE]" not in data
    assert not data.endswith(b"0\r\n\r\n"), "the last chunk would be a clean end"
    event = [line for line in data.split(b"\r\n") if line.startswith(b"data: ")][-1]
    shown = json.loads(event.removeprefix(b"data: "))["error"]
    assert shown["code"] == code
    assert b"secret" not in data


def test_the_sdk_raises_what_failed_in_the_middle(server: Running) -> None:
    server.engine.script = failing(EngineFailureError("x"))
    stream = server.sdk.chat.completions.create(**body(CHAT), stream=True)
    text = ""
    with pytest.raises(openai.APIError) as raised:  # noqa: PT012  the stream breaks somewhere in the loop
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    assert text == "Hello there"
    assert raised.value.code == "engine_failure"


def test_one_failing_prompt_of_many_fails_all_and_lets_the_others_go(server: Running) -> None:
    async def script(request):
        if request.prompt_ids[0] == ord("b"):
            await asyncio.sleep(0.05)
            raise EngineFailureError("x")
        async for event in speak_then_hang(request):
            yield event

    server.engine.script = script
    response = server.http.post(COMPLETIONS, json=body(COMPLETIONS) | {"prompt": ["a", "b", "c"]})
    assert response.status_code == 500
    wait_until(lambda: len(server.engine.cancelled) == 2, "the others are told")
    assert not server.engine.running


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_first_byte_is_cancelled(
    server: Running, client: socket.socket, path: str, stream: bool
) -> None:
    server.engine.script = hang
    client.sendall(request_bytes(path, body(path, stream=stream)))
    wait_until(lambda: server.engine.running, "the engine runs")
    client.close()
    wait_until(lambda: server.engine.cancelled, "the engine is told")
    assert not server.engine.running


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_in_the_middle_is_cancelled(
    server: Running, client: socket.socket, stream: bool
) -> None:
    server.engine.script = speak_then_hang
    client.sendall(request_bytes(CHAT, body(CHAT, stream=stream)))
    wait_until(lambda: server.engine.events_given, "the engine spoke")
    if stream:
        assert b"Hello" in client.recv(65536)
    client.close()
    wait_until(lambda: server.engine.cancelled, "the engine is told")


def test_a_client_that_leaves_cancels_every_prompt(server: Running, client: socket.socket) -> None:
    server.engine.script = speak_then_hang
    client.sendall(request_bytes(COMPLETIONS, body(COMPLETIONS) | {"prompt": ["a", "b", "c"]}))
    wait_until(lambda: len(server.engine.running) == 3, "all run")
    client.close()
    wait_until(lambda: len(server.engine.cancelled) == 3, "all are told")


def test_a_client_that_leaves_while_sending_never_reaches_the_engine(
    server: Running, client: socket.socket
) -> None:
    client.sendall(request_bytes(CHAT, body(CHAT))[:-10])
    client.close()
    assert server.http.post(CHAT, json=body(CHAT)).status_code == 200
    assert len(server.engine.requests) == 1


def test_a_client_that_leaves_while_its_prompt_is_encoded_never_reaches_the_engine(
    server: Running, client: socket.socket
) -> None:
    gate = server.prompts.gate
    gate.clear()
    payload = body(CHAT) | {"messages": [{"role": "user", "content": "a" * 30_000}]}
    client.sendall(request_bytes(CHAT, payload))
    wait_until(lambda: server.prompts.threads, "the prompt is being encoded")
    client.close()
    wait_until(
        lambda: "\nkvgate_requests_in_flight 0.0" in server.http.get("/metrics").text, "its request has ended"
    )
    gate.set()
    # The threads take work in order, so an answer to this says that the first one is through.
    for _ in range(2):
        server.http.post(CHAT, json=payload)
    wait_until(lambda: len(server.prompts.seen) == 3, "all were encoded")
    assert server.engine.requests == []


async def test_the_async_sdk_can_leave_a_stream(server: Running) -> None:
    server.engine.script = speak_then_hang
    async with server.async_sdk as sdk:
        stream = await sdk.chat.completions.create(**body(CHAT), stream=True)
        async for _ in stream:
            break
        await stream.close()
    await asyncio.to_thread(wait_until, lambda: server.engine.cancelled, "the engine is told")


def test_a_slow_reader_stops_the_engine_and_grows_no_queue(serve_with) -> None:
    server = serve_with(max_queued_events=8)
    total = 4000

    async def flood(request):
        for _ in range(total):
            yield TextDelta(0, "x" * 4096)
        yield Finished(0, "stop")
        yield usage_of(request)

    server.engine.script = flood
    with connect(server, receive_buffer=4096) as client:
        client.sendall(request_bytes(CHAT, body(CHAT, stream=True)))
        assert client.recv(1)
        given = -1
        while given != server.engine.events_given:
            given = server.engine.events_given
            wait_until(lambda: server.http.get("/health").status_code == 200, "others are served")
            time.sleep(0.2)
        assert given < total, "the engine was held back"
        data = read_until_done(client)
    assert data.count(b"x" * 4096) == total
    wait_until(lambda: server.engine.completed, "the engine finished")


def read_until_done(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(1 << 20):
        pieces.append(piece)
        if b"[DONE]" in b"".join(pieces[-2:]):
            break
    return b"".join(pieces)


def test_a_reader_that_takes_nothing_is_dropped(serve_with) -> None:
    server = serve_with(max_queued_events=8, write_stall_s=0.2)

    async def flood(request):
        while True:
            yield TextDelta(0, "x" * 65536)
            await asyncio.sleep(0)

    server.engine.script = flood
    with connect(server, receive_buffer=4096) as client:
        client.sendall(request_bytes(CHAT, body(CHAT, stream=True)))
        wait_until(lambda: server.engine.cancelled, "the engine is told")


def test_comments_keep_a_waiting_stream_open(serve_with) -> None:
    server = serve_with(keepalive_s=0.05)

    heard = threading.Event()

    async def slow(request):
        await asyncio.to_thread(heard.wait, PATIENCE_S)
        yield TextDelta(0, "late")
        yield Finished(0, "stop")
        yield usage_of(request)

    server.engine.script = slow
    with server.http.stream("POST", CHAT, json=body(CHAT, stream=True)) as response:
        pieces = response.iter_text()
        first = next(pieces)
        heard.set()
        assert "late" in "".join(pieces)
    assert first.startswith(": keep-alive\n\n")
    chunks = server.sdk.chat.completions.create(**body(CHAT), stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "late"


def test_each_event_is_flushed_when_it_comes(server: Running) -> None:
    go = threading.Event()

    async def lockstep(request):
        yield TextDelta(0, "first")
        await asyncio.to_thread(go.wait, PATIENCE_S)
        yield TextDelta(0, "second")
        yield Finished(0, "stop")
        yield usage_of(request)

    server.engine.script = lockstep
    with server.http.stream("POST", CHAT, json=body(CHAT, stream=True)) as response:
        lines = response.iter_lines()
        assert any("first" in line for line in lines), "the first event came while the second was held back"
        go.set()
        rest = "".join(lines)
    assert "second" in rest
    assert rest.endswith("data: [DONE]")


def test_stream_headers_forbid_caching(server: Running) -> None:
    response = server.http.post(CHAT, json=body(CHAT, stream=True))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-request-id"]


def test_an_engine_that_ignores_cancellation_holds_nothing_up(serve_with) -> None:
    server = serve_with(cancel_wait_s=0.1)
    release = threading.Event()

    async def stubborn(request):
        yield TextDelta(0, "x")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(release.wait, PATIENCE_S)

    server.engine.script = stubborn
    with connect(server) as client:
        client.sendall(request_bytes(CHAT, body(CHAT)))
        wait_until(lambda: server.engine.events_given, "the engine spoke")
    server.engine.script = hello
    assert server.http.post(CHAT, json=body(CHAT)).status_code == 200
    release.set()
    wait_until(lambda: not server.engine.running, "the engine let go at last")


def test_http_1_0_and_closing_clients_get_a_whole_stream(server: Running) -> None:
    with httpx.Client(base_url=server.url, headers={"connection": "close"}, timeout=60) as http:
        assert http.post(CHAT, json=body(CHAT, stream=True)).text.endswith("data: [DONE]\n\n")
