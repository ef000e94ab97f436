"""Relayed streams on the wire: bytes as they come, engines that die, clients that go."""

import json
import threading
import time

import httpx
import openai
import pytest

from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from tests.gateway.leaving import asking
from tests.gateway.relay.fake_engine import (
    DONE,
    FINISH,
    MODEL,
    content,
    event,
    fake_engine,
    usage,
    usage_event,
    whole,
)
from tests.gateway.relay.serving import relaying
from tests.waiting import PATIENCE_S, wait_until

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
STREAM = {"model": MODEL, "messages": MESSAGES, "stream": True}


def says(*pieces: bytes):
    """A script that sends a whole stream, each piece in a packet of its own."""

    def script(connection, _):
        connection.stream()
        for piece in pieces:
            connection.chunk(piece)
            time.sleep(0.005)
        connection.end()

    return script


def read_stream(gateway, body=None, heard=None) -> tuple[bytes, bool]:
    """All bytes of a stream, and whether it ended cleanly. `heard` gets what came so far, piece by piece."""
    data = b""
    with gateway.http.stream("POST", CHAT, json=body or STREAM) as answer:
        assert answer.status_code == 200
        try:
            for piece in answer.iter_raw():
                data += piece
                if heard is not None:
                    heard(data)
        except httpx.RemoteProtocolError:
            return data, False
    return data, True


def told_of(wanted: bytes):
    """An event, and a hearer that sets it once `wanted` has come."""
    event = threading.Event()
    return event, lambda data: event.set() if wanted in data else None


def test_every_byte_passes_but_for_the_usage_chunk_that_nobody_asked_for(relay_to) -> None:
    odd = b': a comment\n\nevent: x\r\nid: 7\r\ndata:{"choices":[],"n": 1E2}\r\n\r\n'
    pair = relay_to(says(odd + content("He"), content("llo"), FINISH, usage_event(4), DONE))
    data, clean = read_stream(pair.gateway)
    assert clean
    assert data == odd + content("He") + content("llo") + FINISH + DONE
    assert pair.engine.asked[0].body["stream_options"] == {"include_usage": True}
    row = pair.gateway.rows.one()
    assert (row.prompt, row.reused, row.completion, row.finish) == (20, 4, 2, "stop")


def test_frames_may_be_split_anywhere(relay_to) -> None:
    whole = content("Hé") + FINISH + usage_event(4) + DONE
    pair = relay_to(says(*(whole[i : i + 7] for i in range(0, len(whole), 7))))
    body = {**STREAM, "stream_options": {"include_usage": True}}
    data, clean = read_stream(pair.gateway, body)
    assert clean
    assert data == whole
    assert pair.engine.asked[0].raw == json.dumps(body, separators=(",", ":")).encode()
    assert pair.gateway.rows.one().reused == 4


def test_usage_in_a_chunk_with_content_is_hidden_and_the_content_is_not(relay_to) -> None:
    last = {"id": "c", "choices": [{"index": 0, "delta": {"content": "!"}, "finish_reason": "stop"}]}
    pair = relay_to(says(event({**last, "usage": usage(4)}), DONE))
    data, _ = read_stream(pair.gateway)
    (payload,) = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    assert payload == {**last, "usage": None}
    assert pair.gateway.rows.one().reused == 4


def test_bytes_pass_before_the_answer_has_ended(relay_to) -> None:
    go_on = threading.Event()

    def script(connection, _):
        connection.stream()
        connection.chunk(content("first"))
        assert go_on.wait(PATIENCE_S)
        connection.chunk(FINISH + DONE)
        connection.end()

    pair = relay_to(script)
    with pair.gateway.http.stream("POST", CHAT, json=STREAM) as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == content("first")
        go_on.set()
        assert b"".join(pieces) == FINISH + DONE


@pytest.mark.parametrize("death", ["reset", "cut", "end without an end"])
def test_an_engine_that_dies_ends_its_stream_with_an_error_and_never_cleanly(relay_to, death: str) -> None:
    arrived = threading.Event()

    def script(connection, _):
        connection.stream()
        connection.chunk(content("first"))
        arrived.wait(PATIENCE_S)
        if death == "reset":
            connection.reset()
        elif death == "end without an end":
            connection.end()
        else:
            raise OSError

    pair = relay_to(script)
    data, clean = read_stream(pair.gateway, heard=lambda _: arrived.set())
    assert not clean
    first, _, rest = data.partition(b"\n\n")
    assert first + b"\n\n" == content("first")
    error = json.loads(rest.removeprefix(b"data: "))["error"]
    assert (error["type"], error["code"]) == ("server_error", "engine_failure")
    row = pair.gateway.rows.one()
    assert (row.status, row.error, row.reuse_status, row.reused) == (
        200,
        "engine_failure",
        "not_reported",
        None,
    )


def test_the_sdk_sees_the_death_of_an_engine(relay_to) -> None:
    arrived = threading.Event()

    def script(connection, _):
        connection.stream()
        connection.chunk(content("first"))
        arrived.wait(PATIENCE_S)
        connection.reset()

    pair = relay_to(script)
    stream = pair.gateway.sdk.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    assert next(stream).choices[0].delta.content == "first"
    arrived.set()
    with pytest.raises(openai.APIError):
        list(stream)


@pytest.mark.parametrize(
    "told",
    [
        {"error": {"message": "out of memory", "type": "InternalServerError", "code": 500}},
        {"object": "error", "message": "out of memory", "type": "InternalServerError", "code": 500},
    ],
)
def test_an_error_event_of_an_engine_comes_in_our_shape_and_cuts_the_stream(relay_to, told) -> None:
    pair = relay_to(says(content("first"), event(told), DONE))
    data, clean = read_stream(pair.gateway)
    assert not clean
    payload = json.loads(data.split(b"\n\n")[1].removeprefix(b"data: "))
    assert payload == {
        "error": {"message": "out of memory", "type": "server_error", "param": None, "code": None}
    }
    assert pair.gateway.rows.one().error == "InternalServerError"


def test_a_slow_first_byte_is_bridged_by_comments(relay_to) -> None:
    bridged, hear = told_of(b": keep-alive\n\n: keep-alive\n\n")

    def script(connection, _):
        bridged.wait(PATIENCE_S)
        says(content("late"), FINISH, DONE)(connection, _)

    pair = relay_to(script, keepalive_s=0.1)
    data, clean = read_stream(pair.gateway, heard=hear)
    assert clean
    assert data.startswith(b": keep-alive\n\n: keep-alive\n\n")
    assert data.endswith(content("late") + FINISH + DONE)


def test_a_refusal_after_comments_is_an_event_and_a_cut(relay_to) -> None:
    bridged, hear = told_of(b": keep-alive")

    def script(connection, _):
        bridged.wait(PATIENCE_S)
        connection.reply(b'{"error": {"message": "no", "type": "invalid_request_error"}}', "400 Bad Request")

    pair = relay_to(script, keepalive_s=0.1)
    data, clean = read_stream(pair.gateway, heard=hear)
    assert not clean
    assert json.loads(data.split(b"data: ")[1])["error"]["message"] == "no"


def test_comments_never_stand_inside_a_frame(relay_to) -> None:
    def script(connection, _):
        connection.stream()
        frame = content("slow")
        connection.chunk(frame[:9])
        time.sleep(0.35)
        connection.chunk(frame[9:] + FINISH + DONE)
        connection.end()

    pair = relay_to(script, keepalive_s=0.1)
    data, _ = read_stream(pair.gateway)
    assert data.replace(b": keep-alive\n\n", b"") == content("slow") + FINISH + DONE
    assert content("slow") in data


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_goes_closes_the_connection_to_the_engine(relay_to, begun: bool) -> None:
    closed: list[bool] = []

    def script(connection, _):
        if begun:
            connection.stream()
            connection.chunk(content("first"))
        closed.append(connection.wait_for_its_end())

    pair = relay_to(script)
    with asking(pair.gateway.port, CHAT, STREAM) as client:
        wait_until(lambda: pair.engine.asked, "the engine has it")
        while begun and b"first" not in client.recv(65536):
            pass
    row = pair.gateway.rows.one()
    assert (row.error, row.status) == ("client_gone", 200 if begun else 499)
    wait_until(lambda: closed, "the engine has seen it")
    assert closed == [True]


def test_a_whole_answer_is_cancelled_with_its_client_too(relay_to) -> None:
    closed: list[bool] = []

    def script(connection, _):
        closed.append(connection.wait_for_its_end())

    pair = relay_to(script)
    with asking(pair.gateway.port, CHAT, {"model": MODEL, "messages": MESSAGES}):
        wait_until(lambda: pair.engine.asked, "the engine has it")
    assert pair.gateway.rows.one().error == "client_gone"
    wait_until(lambda: closed, "the engine has seen it")
    assert closed == [True]


def test_a_server_that_ends_tells_streams_that_outlive_it(relay_to) -> None:
    def script(connection, _):
        connection.stream()
        connection.chunk(content("first"))
        connection.wait_for_its_end()

    pair = relay_to(script)
    data, clean = b"", True
    with pair.gateway.http.stream("POST", CHAT, json=STREAM) as answer:
        try:
            for piece in answer.iter_raw():
                data += piece
                pair.gateway.stop()
        except httpx.RemoteProtocolError:
            clean = False
    assert not clean
    assert json.loads(data.split(b"data: ")[2])["error"]["code"] in ("engine_failure", "engine_not_ready")


def test_more_requests_than_connections_are_told_to_come_back() -> None:
    go_on = threading.Event()

    def script(connection, _):
        assert go_on.wait(PATIENCE_S)
        connection.reply(whole(0))

    with fake_engine(script) as engine:
        options = HttpOptions(pool_s=0.1, max_connections=1)
        remote = Remote(OpenAICompatibleEngine("fake", engine.url, (), options))
        with relaying([remote]) as gateway:
            body = {"model": MODEL, "messages": MESSAGES}
            first = threading.Thread(target=gateway.http.post, args=(CHAT,), kwargs={"json": body})
            first.start()
            wait_until(lambda: engine.asked, "the first request is there")
            second = gateway.http.post(CHAT, json=body)
            go_on.set()
            first.join()
    assert (second.status_code, second.json()["error"]["code"]) == (429, "engine_overloaded")
    assert second.headers["retry-after"]
