"""What clients are told of usage: what the engine reported, nothing where it did not, all where they ask."""

import json
from typing import Any

import pytest

from tests.gateway.relay.fake_engine import DONE, FINISH, MODEL, content, event, usage, usage_event, whole

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
FULL = {"x-kvgate-usage": "full"}


def replies(body: bytes):
    return lambda connection, _: connection.reply(body)


def streams(*events: bytes):
    def script(connection, _):
        connection.stream()
        connection.chunk(b"".join(events))
        connection.end()

    return script


def last_usage(data: bytes) -> Any:
    payloads = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    return [payload["usage"] for payload in payloads if payload.get("usage")][-1]


def test_an_answer_that_needs_no_change_keeps_every_byte(relay_to) -> None:
    body = b'{ "choices": [],\n "n": 1E2, "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}}'
    pair = relay_to(replies(body))
    answer = pair.gateway.http.post(CHAT, json=BODY)
    assert answer.content == body
    assert answer.headers["x-kvgate-reuse"] == "reported; reused=0; prompt=9"
    row = pair.gateway.rows.one()
    assert (row.reused, row.reuse_status) == (0, "reported")


def test_what_was_not_reported_is_absent_and_no_zero_anywhere(relay_to) -> None:
    pair = relay_to(replies(whole(None)))
    answer = pair.gateway.http.post(CHAT, json=BODY, headers=FULL)
    told = answer.json()["usage"]
    assert "prompt_tokens_details" not in told
    assert (told["kvgate"]["reused"], told["kvgate"]["recomputed"]) == (None, None)
    assert told["kvgate"]["status"] == "not_reported"
    assert answer.headers["x-kvgate-reuse"] == "not_reported; prompt=20"
    row = pair.gateway.rows.one()
    assert (row.reused, row.recomputed, row.reuse_status) == (None, None, "not_reported")


@pytest.mark.parametrize("stream", [False, True])
def test_a_zero_that_may_mean_off_is_taken_out(relay_to, stream: bool) -> None:
    script = streams(content("Hi"), FINISH, usage_event(0), DONE) if stream else replies(whole(0))
    pair = relay_to(script, profile="lmdeploy")
    body = {**BODY, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
    answer = pair.gateway.http.post(CHAT, json=body)
    told = last_usage(answer.content) if stream else answer.json()["usage"]
    assert told == usage(None)
    row = pair.gateway.rows.one()
    assert (row.prompt, row.reused, row.reuse_status) == (20, None, "not_reported")


def test_details_beside_a_weak_zero_stay(relay_to) -> None:
    given = {**usage(None), "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 3}}
    pair = relay_to(replies(json.dumps({"choices": [], "usage": given}).encode()), profile="lmdeploy")
    told = pair.gateway.http.post(CHAT, json=BODY).json()["usage"]
    assert told["prompt_tokens_details"] == {"audio_tokens": 3}


def test_what_cannot_be_true_is_kept_and_flagged(relay_to) -> None:
    pair = relay_to(replies(whole(99)))
    answer = pair.gateway.http.post(CHAT, json=BODY, headers=FULL)
    told = answer.json()["usage"]
    assert told["prompt_tokens_details"] == {"cached_tokens": 99}
    assert (told["kvgate"]["status"], told["kvgate"]["reused"]) == ("inconsistent", 99)
    assert told["kvgate"]["recomputed"] is None
    row = pair.gateway.rows.one()
    assert (row.reused, row.reuse_status) == (99, "inconsistent")


def test_tiers_are_told(relay_to) -> None:
    body = json.loads(whole(12))
    body["sglext"] = {"cached_tokens_details": {"device": 8, "host": 4}}
    pair = relay_to(replies(json.dumps(body).encode()), profile="sglang")
    told = pair.gateway.http.post(CHAT, json=BODY, headers=FULL).json()["usage"]["kvgate"]
    assert told["by_tier"] == {"device": 8, "host": 4}
    assert told["recomputed"] == 8
    assert pair.gateway.rows.one().by_tier == {"device": 8, "host": 4}


def test_the_header_asks_for_usage_in_a_stream_too_and_configuration_does_not(relay_to) -> None:
    script = streams(content("Hi"), FINISH, usage_event(4), DONE)
    pair = relay_to(script, usage="full")
    body = {**BODY, "stream": True}
    assert b"kvgate" not in pair.gateway.http.post(CHAT, json=body).content
    asked = {**body, "stream_options": {"include_usage": True}}
    assert last_usage(pair.gateway.http.post(CHAT, json=asked).content)["kvgate"]["reused"] == 4
    assert last_usage(pair.gateway.http.post(CHAT, json=body, headers=FULL).content)["kvgate"]["reused"] == 4


def test_a_client_may_have_less_than_is_configured_and_nothing_else(relay_to) -> None:
    pair = relay_to(replies(whole(4)), usage="full")
    assert "kvgate" in pair.gateway.http.post(CHAT, json=BODY).json()["usage"]
    less = pair.gateway.http.post(CHAT, json=BODY, headers={"x-kvgate-usage": "standard"})
    assert less.content == whole(4)
    wrong = pair.gateway.http.post(CHAT, json=BODY, headers={"x-kvgate-usage": "all"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "x-kvgate-usage")


def responses_usage(cached: int) -> dict[str, Any]:
    return {"input_tokens": 20, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": 2}


def test_a_weak_zero_of_responses_is_in_header_and_ledger_as_not_reported(relay_to) -> None:
    body = {"object": "response", "output": [], "status": "completed", "usage": responses_usage(0)}
    pair = relay_to(replies(json.dumps(body).encode()), profile="vllm")
    answer = pair.gateway.http.post(RESPONSES, json={"model": MODEL, "input": "Hi"})
    assert "input_tokens_details" not in answer.json()["usage"]
    assert answer.headers["x-kvgate-reuse"] == "not_reported; prompt=20"
    row = pair.gateway.rows.one()
    assert (row.route, row.prompt, row.reused, row.reuse_status) == ("responses", 20, None, "not_reported")


@pytest.mark.parametrize("cached", [0, 16])
def test_a_stream_of_responses_is_told_to_the_ledger(relay_to, cached: int) -> None:
    delta = event({"type": "response.output_text.delta", "delta": "Hi"})
    done = {"output": [], "status": "completed", "usage": responses_usage(cached)}
    script = streams(
        delta, b"event: response.completed\n" + event({"type": "response.completed", "response": done})
    )
    pair = relay_to(script, profile="vllm")
    data = pair.gateway.http.post(RESPONSES, json={"model": MODEL, "input": "Hi", "stream": True}).content
    assert "stream_options" not in pair.engine.asked[0].body
    row = pair.gateway.rows.one()
    assert row.first_token is not None
    if cached:
        assert (row.reused, row.reuse_status) == (16, "reported")
        assert event({"type": "response.completed", "response": done}) in data
    else:
        assert (row.reused, row.reuse_status) == (None, "not_reported")
        assert b"cached_tokens" not in data


def test_a_stream_of_messages_sums_what_anthropic_leaves_out(relay_to) -> None:
    start = {
        "input_tokens": 3,
        "cache_read_input_tokens": 40,
        "cache_creation_input_tokens": 5,
        "output_tokens": 1,
    }
    script = streams(
        b"event: message_start\n" + event({"type": "message_start", "message": {"usage": start}}),
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
        event({"type": "message_stop"}),
    )
    pair = relay_to(script)
    pair.gateway.served.remotes[0].engine.paths = {"messages": "/messages"}
    body = {"model": MODEL, "max_tokens": 9, "stream": True, "messages": BODY["messages"]}
    data = pair.gateway.http.post(MESSAGES, json=body, headers=FULL).content
    told = last_usage(data)
    assert told["output_tokens"] == 7
    assert (told["kvgate"]["reused"], told["kvgate"]["recomputed"]) == (40, 8)
    row = pair.gateway.rows.one()
    assert (row.prompt, row.reused, row.completion, row.finish) == (48, 40, 7, "end_turn")
