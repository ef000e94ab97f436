"""Streams on raw sockets: whatever form an engine gives its events, every byte arrives, and each is accounted for."""

import json
import socket
from dataclasses import dataclass

import pytest

from tests.gateway.relay.conftest import Pair
from tests.gateway.relay.fake_engine import MODEL

BOM = b"\xef\xbb\xbf"
MESSAGES = [{"role": "user", "content": "Hi"}]


@dataclass(frozen=True, slots=True)
class Kind:
    """One route, what it is asked, and what a whole stream of it says."""

    path: str
    body: dict
    payloads: tuple[dict | str, ...]

    def ask(self) -> bytes:
        body = json.dumps({"model": MODEL, "stream": True, **self.body}).encode()
        head = f"POST {self.path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        return head.encode() + body


def choice(**delta: object) -> dict:
    return {"id": "c", "choices": [{"index": 0, "finish_reason": None, **delta}]}


USAGE = {"prompt_tokens": 20, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
INPUT = {"input_tokens": 20, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}
READ = {
    "input_tokens": 16,
    "cache_read_input_tokens": 4,
    "cache_creation_input_tokens": 0,
    "output_tokens": 2,
}
WITH_USAGE = {"stream_options": {"include_usage": True}}
KINDS = {
    "chat": Kind(
        "/v1/chat/completions",
        {"messages": MESSAGES, **WITH_USAGE},
        (
            choice(delta={"content": "Hé\u2028"}),
            choice(delta={}, finish_reason="stop"),
            {"id": "c", "choices": [], "usage": USAGE},
            "[DONE]",
        ),
    ),
    "completions": Kind(
        "/v1/completions",
        {"prompt": "Hi", **WITH_USAGE},
        (
            choice(text="Hé"),
            choice(text="", finish_reason="stop"),
            {"id": "c", "choices": [], "usage": USAGE},
            "[DONE]",
        ),
    ),
    "responses": Kind(
        "/v1/responses",
        {"input": "Hi"},
        (
            {"type": "response.created", "response": {"id": "resp_1", "object": "response"}},
            {"type": "response.output_text.delta", "delta": "Hé"},
            {
                "type": "response.completed",
                "response": {"id": "resp_1", "object": "response", "usage": INPUT},
            },
        ),
    ),
    "messages": Kind(
        "/v1/messages",
        {"messages": MESSAGES, "max_tokens": 5},
        (
            {"type": "message_start", "message": {"usage": READ}},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hé"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ),
    ),
}


def usual(payloads) -> bytes:
    return b"".join(b"data: " + text(each) + b"\n\n" for each in payloads)


def text(payload: dict | str) -> bytes:
    return payload.encode() if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False).encode()


def with_line_ends(payloads) -> bytes:
    return b"".join(b"event: x\r\ndata: " + text(each) + b"\r\n\r\n" for each in payloads)


def without_blanks(payloads) -> bytes:
    return b"".join(b"data:" + text(each) + b"\n\n" for each in payloads)


def in_several_lines(payloads) -> bytes:
    """JSON over lines, each with a `data:` of its own; an id behind it."""
    frames = []
    for each in payloads:
        lines = (
            json.dumps(each, indent=1).encode().split(b"\n") if isinstance(each, dict) else [each.encode()]
        )
        frames.append(b"".join(b"data: " + line + b"\n" for line in lines) + b"id: 7\n\n")
    return b"".join(frames)


def behind_a_mark(payloads) -> bytes:
    return BOM + usual(payloads)


def with_carriage_returns(payloads) -> bytes:
    return b"".join(b"data: " + text(each) + b"\r\r" for each in payloads)


def among_comments(payloads) -> bytes:
    return b"".join(b": PROCESSING\n\n:\n\nretry: 10\n\ndata: " + text(each) + b"\n\n" for each in payloads)


def giant(payloads) -> bytes:
    return usual(payloads[:1]) + b": " + b"x" * 3_000_000 + b"\n\n" + usual(payloads[1:])


FORMS = [
    usual,
    with_line_ends,
    without_blanks,
    in_several_lines,
    behind_a_mark,
    with_carriage_returns,
    among_comments,
    giant,
]


def receive(pair: Pair, kind: Kind) -> tuple[bytes, bool]:
    """The body as it came over the socket, and whether it ended as HTTP has it."""
    with socket.create_connection(("127.0.0.1", pair.gateway.port), timeout=60) as client:
        client.sendall(kind.ask())
        data = b""
        while piece := client.recv(1 << 20):
            data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return body, True
        body, rest = body + rest[:length], rest[length + 2 :]
    return body, False


def sends(data: bytes, size: int):
    """A script that sends `data` in pieces of `size` bytes, each a chunk of HTTP's."""

    def script(connection, _):
        connection.stream()
        for start in range(0, len(data), size):
            connection.chunk(data[start : start + size])
        connection.end()

    return script


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KINDS)
def test_every_byte_arrives_and_is_accounted_for_in_any_form(relay_to, name: str, form) -> None:
    kind = KINDS[name]
    data = form(kind.payloads)
    pair = relay_to(sends(data, 70_000), "anthropic" if name == "messages" else "openai")
    assert receive(pair, kind) == (data, True)
    row = pair.gateway.rows.one()
    assert (row.prompt, row.reused, row.completion, row.reuse_status) == (20, 4, 2, "reported")
    assert row.first_token is not None


@pytest.mark.parametrize("form", [usual, with_line_ends, in_several_lines, behind_a_mark])
@pytest.mark.parametrize("name", KINDS)
def test_events_may_come_byte_by_byte(relay_to, name: str, form) -> None:
    kind = KINDS[name]
    data = form(kind.payloads)
    pair = relay_to(sends(data, 1), "anthropic" if name == "messages" else "openai")
    assert receive(pair, kind) == (data, True)
    assert pair.gateway.rows.one().reused == 4


@pytest.mark.parametrize("form", [usual, with_line_ends])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("keep", [1, 2])
def test_a_stream_that_dies_ends_with_an_error_event_and_an_aborted_socket(
    relay_to, name: str, form, keep: int
) -> None:
    kind = KINDS[name]
    whole = form(kind.payloads[:keep])
    begun = form(kind.payloads[keep : keep + 1])[:-9]

    def script(connection, _):
        connection.stream()
        connection.chunk(whole)
        connection.chunk(begun)
        connection.reset()

    pair = relay_to(script)
    data, clean = receive(pair, kind)
    assert not clean
    assert data.startswith(whole)
    told = data[len(whole) :]
    assert begun not in told  # half an event would take the error into it
    event, _, line = told.rpartition(b"data: ")
    error = json.loads(line)
    assert error["error"]["code"] == "engine_failure"
    assert error["error"]["type"] == "server_error"
    if name == "messages":
        assert event == b"event: error\n"
        assert error["type"] == "error"
    row = pair.gateway.rows.one()
    assert (row.error, row.reuse_status) == (
        "engine_failure",
        "not_reported" if name != "messages" else "reported",
    )


def test_an_event_larger_than_any_bound_passes_unread_and_ends_well(relay_to, monkeypatch) -> None:
    monkeypatch.setattr("engine_adapters.reuse.sse.MAX_EVENT", 1000)
    kind = KINDS["chat"]
    data = usual(kind.payloads[:1]) + b": " + b"x" * 1_000_000 + b"\n\n" + usual(kind.payloads[1:])
    pair = relay_to(sends(data, 70_000))
    assert receive(pair, kind) == (data, True)
    assert pair.gateway.rows.one().reuse_status == "not_reported"


def test_a_wrong_end_of_the_engines_is_told_where_nothing_was_sent_yet(relay_to) -> None:
    pair = relay_to(lambda connection, _: connection.reset())
    answer = pair.gateway.http.post("/v1/responses", json={"model": MODEL, "input": "Hi", "stream": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failure")
    assert answer.headers["x-request-id"]
