"""One access line for every request, and never a word of a prompt or an answer."""

import asyncio
import io
import logging
import re
import uuid
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from engine_adapters.base import TextDelta
from gateway.logs import BatchedHandler, JsonFormatter, LineFormatter, LogfmtFormatter, log_all
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


LINES = [{"id": "req_1", "status": 200, "stream": True}, {"id": "req_2", "path": 'a b\n"c"', "process": "x"}]


def written_to(formatter: LineFormatter) -> tuple[io.StringIO, BatchedHandler]:
    stream = io.StringIO()
    return stream, BatchedHandler(stream, formatter, wait_s=60)


def untimed(stream: io.StringIO) -> list[str]:
    return [re.sub(r"\d{4}-[-0-9T:+]+", "TIME", line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("form", [LogfmtFormatter, JsonFormatter])
@pytest.mark.parametrize("process", [None, "worker 1"])
def test_many_lines_at_once_are_those_that_each_alone_would_be(
    form: type[LineFormatter], process: str | None
) -> None:
    logger, texts = logging.Logger("kvgate.access", logging.INFO), []
    for at_once in (True, False):
        stream, handler = written_to(form())
        handler.lines_of.always = {} if process is None else {"process": process}
        logger.handlers = [handler]
        if at_once:
            log_all(logger, logging.INFO, "request", LINES)
        else:
            for fields in LINES:
                logger.info("request", extra={"fields": fields})
        log_all(logger, logging.DEBUG, "request", LINES)
        handler.flush()
        texts.append(untimed(stream))
    assert texts[0] == texts[1]
    assert len(texts[0]) == 2
    assert process is None or all(process in line for line in texts[0])


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.fields: list[object] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.fields.append(record.fields)


def test_who_else_listens_gets_records_of_many_lines_too() -> None:
    parent, logger = logging.Logger("kvgate", logging.INFO), logging.Logger("kvgate.access", logging.INFO)
    (stream, ours), kept = written_to(LogfmtFormatter()), Kept()
    logger.parent, logger.handlers, parent.handlers = parent, [kept], [ours]
    log_all(logger, logging.INFO, "request", LINES)
    ours.flush()
    assert kept.fields == LINES
    assert len(stream.getvalue().splitlines()) == 2


@pytest.mark.parametrize("of", ["logger", "handler"])
def test_many_lines_go_through_filters(of: str) -> None:
    logger = logging.Logger("kvgate.access", logging.INFO)
    stream, ours = written_to(LogfmtFormatter())
    logger.handlers = [ours]
    (logger if of == "logger" else ours).addFilter(lambda record: record.fields["id"] == "req_2")
    log_all(logger, logging.INFO, "request", LINES)
    ours.flush()
    assert [line.split()[3] for line in untimed(stream)] == ["id=req_2"]


def test_one_line_that_cannot_be_written_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unsayable:
        def __str__(self) -> str:
            raise ValueError(SECRET)

    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger = logging.Logger("kvgate.access", logging.INFO)
    stream, ours = written_to(JsonFormatter())
    logger.handlers = [ours]
    log_all(logger, logging.INFO, "request", [LINES[0], {"id": Unsayable()}, LINES[1]])
    ours.flush()
    assert [orjson.loads(line)["id"] for line in untimed(stream)] == ["req_1", "req_2"]
