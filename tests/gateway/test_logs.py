"""One access line for every request, and never a word of a prompt or an answer."""

import asyncio
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from engine_adapters.base import TextDelta
from gateway.logs import JsonFormatter, LogfmtFormatter
from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL
from tests.waiting import wait_until

CHAT = "/v1/chat/completions"
SECRET = "xyzzy-secret"


@pytest.fixture
def lines(server: Running, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """The access lines of this test's requests. Those of the test before may still come."""
    caplog.set_level(logging.INFO, "kvgate")
    server.http.headers["x-request-id"] = mine = uuid.uuid4().hex

    def access() -> list[dict[str, Any]]:
        found = [record.fields for record in caplog.records if record.name == "kvgate.access"]
        return [line for line in found if line["id"] == mine]

    yield access
    del server.http.headers["x-request-id"]


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": SECRET}], **fields}


def test_an_answered_request_is_told_with_tokens_and_times(server: Running, lines: Any) -> None:
    response = server.http.post(CHAT, json=chat(stream=True))
    assert response.status_code == 200
    wait_until(lines, "the line is written")
    (line,) = lines()
    assert line["id"] == response.headers["x-request-id"]
    assert (line["status"], line["outcome"], line["model"]) == (200, "ok", MODEL)
    assert (line["prompt_tokens"], line["cached_tokens"], line["completion_tokens"]) == (
        len(SECRET) + 7,
        0,
        2,
    )
    assert 0 <= line["ttft_ms"] <= line["total_ms"]


def test_outcomes_tell_refusals_failures_aborts_and_clients_that_left(server: Running, lines: Any) -> None:
    async def breaks(request):
        yield TextDelta(0, "x")
        raise ZeroDivisionError(SECRET)

    async def fails(request):
        raise ZeroDivisionError(SECRET)
        yield

    async def hangs(request):
        await asyncio.Event().wait()
        yield

    server.http.post(CHAT, json=chat(n=0))
    server.engine.script = fails
    server.http.post(CHAT, json=chat())
    server.engine.script = breaks
    with pytest.raises(Exception, match="incomplete chunked read"):
        server.http.post(CHAT, json=chat(stream=True))
    server.engine.script = hangs
    with pytest.raises(Exception, match="timed out"):
        server.http.post(CHAT, json=chat(), timeout=0.2)
    wait_until(lambda: len(lines()) == 4, "all lines are written")
    assert [(line["status"], line["outcome"]) for line in lines()] == [
        (400, "refused"),
        (500, "failed"),
        (200, "aborted"),
        (499, "client_gone"),
    ]


def test_what_generates_nothing_is_refused_in_the_log_too(server: Running, lines: Any) -> None:
    server.http.get("/nowhere")
    server.served.withdraw("the model is being loaded")
    server.http.get("/v1/models")
    wait_until(lambda: len(lines()) == 2, "both lines are written")
    assert [(line["status"], line["outcome"], line["error"]) for line in lines()] == [
        (404, "refused", "unknown_url"),
        (503, "refused", "engine_not_ready"),
    ]


def test_prompts_reach_no_log_line(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def fails(request):
        raise ZeroDivisionError(SECRET)
        yield

    server.http.post(CHAT, json=chat())
    server.http.post(CHAT, json=chat(temperature=SECRET))
    server.http.post(CHAT, content=f'{{"{SECRET}'.encode())
    server.engine.script = fails
    server.http.post(CHAT, json=chat())
    text = "\n".join(LogfmtFormatter().format(record) for record in caplog.records)
    assert "ZeroDivisionError" in text
    assert SECRET not in text


def record_with(**fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("kvgate.access", logging.INFO, "", 0, "request", None, None)
    record.fields = fields
    return record


def test_a_line_stays_one_line_whatever_a_client_sends() -> None:
    record = record_with(model='a b\n"c"=\x1b[31m', path="/é", stream=True, status=200)
    line = LogfmtFormatter().format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert "stream=true status=200" in line
    assert orjson.loads(JsonFormatter().format(record))["model"] == 'a b\n"c"=\x1b[31m'


def test_names_that_nothing_reads_are_told_and_never_text(server: Running, lines: Any) -> None:
    server.http.post(CHAT, json=chat(temprature=0.1, max_token=5, **{f"{SECRET} and more": 1}))
    wait_until(lines, "the line is written")
    assert lines()[0]["ignored"] == "?,max_token,temprature"


def test_many_unknown_names_are_cut_and_known_ones_are_not_told(server: Running, lines: Any) -> None:
    server.http.post(CHAT, json=chat(**{f"x{i}": 1 for i in range(9)}))
    server.http.post(CHAT, json=chat(temperature=0.1))
    wait_until(lambda: len(lines()) == 2, "the lines are written")
    assert lines()[0]["ignored"] == "x0,x1,x2,x3,x4,..."
    assert "ignored" not in lines()[1]
