"""Streams are read while they pass, however they are cut, and pass unchanged unless something is to be hidden."""

import itertools
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.reuse import PROFILES
from engine_adapters.reuse.sse import EventSplitter, event_data
from engine_adapters.reuse.watcher import StreamWatcher, WholeWatcher

USAGE = {"prompt_tokens": 100, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 64}}


def event(payload: object, end: str = "\n\n", blank: str = " ") -> str:
    return f"data:{blank}{payload if isinstance(payload, str) else json.dumps(payload)}{end}"


def chunk(text: str | None = None, finish: str | None = None, **more: object) -> dict:
    delta = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None, **more}


def chat_stream(end: str = "\n\n", blank: str = " ") -> bytes:
    events = [
        event({"choices": [{"delta": {"role": "assistant"}}]}, end, blank),
        f": keep-alive{end}",
        event(chunk("Hé"), end, blank),
        event(chunk("llo", "stop"), end, blank),
        event({"choices": [], "usage": USAGE}, end, blank),
        event("[DONE]", end, blank),
    ]
    return "".join(events).encode()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(stream) + 1) for place in places}), len(stream)]
    return [stream[a:b] for a, b in itertools.pairwise(edges)]


@given(
    places=st.lists(st.integers(0, 10_000), max_size=30),
    end=st.sampled_from(["\n\n", "\r\n\r\n", "\r\r"]),
    blank=st.sampled_from(["", " "]),
)
def test_a_stream_cut_anywhere_passes_unchanged_and_is_read(places: list[int], end: str, blank: str):
    stream = chat_stream(end, blank)
    watcher = StreamWatcher(PROFILES["openai"], clock=lambda: 5.0)
    passed = b"".join(watcher.feed(piece) for piece in cut(stream, places)) + watcher.end()
    account = watcher.account
    assert passed == stream
    assert (account.reuse.prompt, account.reuse.reused, account.completion_tokens) == (100, 64, 2)
    assert (account.finish, account.ended, account.first_token_at) == ("stop", True, 5.0)


@given(places=st.lists(st.integers(0, 10_000), max_size=30), end=st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_a_usage_chunk_that_nobody_asked_for_is_hidden_and_all_else_passes(places: list[int], end: str):
    stream = chat_stream(end)
    hidden = event({"choices": [], "usage": USAGE}, end).encode()
    watcher = StreamWatcher(PROFILES["openai"], rewrite=lambda got, _: got if got.get("choices") else None)
    passed = b"".join(watcher.feed(piece) for piece in cut(stream, places)) + watcher.end()
    assert passed == stream.replace(hidden, b"")
    assert watcher.account.reuse.reused == 64


def test_no_event_waits_for_a_later_one():
    watcher = StreamWatcher(PROFILES["openai"], rewrite=lambda got, _: got)
    first = event(chunk("a")).encode()
    assert watcher.feed(first) == first
    assert watcher.feed(b": ping\n\n") == b": ping\n\n"
    assert watcher.feed(b"data: {") == b""


def test_usage_is_built_anew_where_asked_and_the_event_keeps_its_name():
    def add(payload: dict, read: object) -> dict:
        return {**payload, "usage": {**payload["usage"], "kvgate": {"reused": 64}}}

    watcher = StreamWatcher(PROFILES["openai"], rewrite=add)
    passed = watcher.feed(b"event: x\nid: 3\n" + event({"choices": [], "usage": USAGE}).encode())
    assert passed.startswith(b"event: x\nid: 3\ndata: ")
    assert orjson.loads(event_data(passed))["usage"]["kvgate"] == {"reused": 64}


def test_a_stream_cut_before_usage_says_nothing():
    stream = chat_stream()
    watcher = StreamWatcher(PROFILES["openai"])
    watcher.feed(stream[: stream.index(b'"usage": {')])
    watcher.end()
    account = watcher.account
    assert (account.reuse.status, account.reuse.reused, account.ended) == ("not_reported", None, False)


def test_anthropics_usage_is_put_together_from_the_start_and_the_end():
    start = {
        "input_tokens": 10,
        "cache_read_input_tokens": 50,
        "cache_creation_input_tokens": 0,
        "output_tokens": 1,
    }
    stream = [
        {"type": "message_start", "message": {"usage": start}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 12}},
        {"type": "message_stop"},
    ]
    watcher = StreamWatcher(PROFILES["anthropic"])
    for payload in stream:
        watcher.feed(f"event: {payload['type']}\n".encode() + event(payload).encode())
    account = watcher.account
    assert (account.reuse.prompt, account.reuse.reused, account.completion_tokens) == (60, 50, 12)
    assert (account.finish, account.ended) == ("end_turn", True)


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("gemini", {"usageMetadata": {"promptTokenCount": 70, "cachedContentTokenCount": 64}}),
        ("bedrock", {"metadata": {"usage": {"inputTokens": 6, "cacheReadInputTokens": 64}}}),
    ],
)
def test_usage_by_other_names_is_found_behind_the_content(profile: str, said: dict):
    watcher = StreamWatcher(PROFILES[profile])
    for payload in (chunk("a"), chunk("b"), said):
        watcher.feed(event(payload).encode())
    assert (watcher.account.reuse.prompt, watcher.account.reuse.reused) == (70, 64)


def test_a_responses_stream_says_its_usage_when_it_is_completed():
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 3}
    watcher = StreamWatcher(PROFILES["openai"], clock=lambda: 1.0)
    watcher.feed(event({"type": "response.created", "response": {"usage": None}}).encode())
    watcher.feed(event({"type": "response.output_text.delta", "delta": "x"}).encode())
    watcher.feed(event({"type": "response.completed", "response": {"usage": usage}}).encode())
    account = watcher.account
    assert (account.reuse.reused, account.completion_tokens, account.ended) == (8, 3, True)
    assert account.first_token_at == 1.0


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"error": {"type": "server_error", "message": "secret"}}, "server_error"),
        ({"error": {"code": 400, "message": "secret"}}, "400"),
        ({"object": "error", "type": "BadRequest", "message": "secret"}, "BadRequest"),
        ({"error": "secret"}, "error"),
    ],
)
def test_an_error_in_a_stream_is_noted_by_kind_and_never_by_text(payload: dict, kind: str):
    watcher = StreamWatcher(PROFILES["openai"])
    watcher.feed(event(payload).encode())
    assert watcher.account.error == kind


def test_a_whole_answer_passes_as_the_bytes_it_came_in():
    body = (
        b'{"choices": [{"finish_reason": "stop"}],  "usage": ' + json.dumps(USAGE).encode() + b', "x": 1e400}'
    )
    watcher = WholeWatcher(PROFILES["openai"])
    assert watcher.read(body, rewrite=lambda got, _: got) == body


def test_what_is_no_json_passes_too():
    for body in (b"", b"Bad gateway", b"[1]", b"null"):
        watcher = WholeWatcher(PROFILES["openai"])
        assert watcher.read(body) == body
        assert watcher.account.reuse.status == "not_reported"


@given(data=st.binary(max_size=300))
def test_any_bytes_pass_unchanged(data: bytes):
    watcher = StreamWatcher(PROFILES["openai"])
    assert watcher.feed(data) + watcher.end() == data


@given(data=st.text(alphabet="data: {}\r\n[]x", max_size=60), places=st.lists(st.integers(0, 60), max_size=8))
def test_events_do_not_depend_on_how_the_stream_is_cut(data: str, places: list[int]):
    def events(pieces: list[bytes]) -> list[bytes]:
        splitter = EventSplitter()
        found = [each for piece in pieces for each in splitter.feed(piece)]
        return [event_data(each) for each in [*found, splitter.rest()] if event_data(each)]

    stream = data.encode()
    assert events(cut(stream, places)) == events([stream])


@pytest.mark.parametrize("written", ['"finish_reason":null', '"finish_reason": null'])
def test_a_reason_is_found_beside_one_that_is_null(written: str):
    watcher = StreamWatcher(PROFILES["openai"])
    first = '{"choices":[{"delta":{"content":"a"},' + written + "}]}"
    last = '{"choices":[{"delta":{},"finish_reason":"length","stop_reason":null}]}'
    for text in (first, first):
        watcher.feed(event(text).encode())
    assert watcher.account.finish is None
    watcher.feed(event(last).encode())
    assert watcher.account.finish == "length"
