"""The shapes of log lines."""

import json

import pytest

from canon.lint.records import LoggedRequest, requests_in

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"model": "m", "input": "hi"}


@pytest.mark.parametrize(
    "record",
    [
        BODY,
        {"request": BODY},
        {"request": json.dumps(BODY)},
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": BODY},
        {"request": {"method": "POST", "body": BODY}},
        {"inputs": BODY["messages"], "model": "m"} | {"model": "m"},
        [BODY],
    ],
)
def test_a_chat_is_found_wherever_logs_put_it(record: object):
    (request,) = requests_in(record)
    assert request.body["messages"] == BODY["messages"]


def test_an_input_text_is_a_raw_prompt_in_an_agent_log_and_a_body_of_its_own_elsewhere():
    agent = {"timestamp": 1, "input": "hi", "output": "hello", "session_id": "s"}
    assert [request.body for request in requests_in(agent)] == [{"prompt": "hi"}]
    assert [request.body for request in requests_in(RESPONSES)] == [RESPONSES]


def test_the_answer_and_the_tenant_come_along():
    answer = {"choices": [{"message": {"role": "assistant", "content": "hello"}}]}
    record = {"request": BODY, "response": {"status_code": 200, "body": answer}, "tenant": "a"}
    assert list(requests_in(record)) == [LoggedRequest(BODY, answer, "a")]


@pytest.mark.parametrize(
    "record", [None, 1, "x", [], {}, {"request": "GET /"}, {"input": 3}, {"a": {"b": {}}}]
)
def test_what_has_no_request_gives_none(record: object):
    assert list(requests_in(record)) == []


def test_nesting_without_end_ends():
    record: object = BODY
    for _ in range(300):
        record = [record]
    assert list(requests_in(record)) == []
