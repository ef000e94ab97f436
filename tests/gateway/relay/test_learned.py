"""Whether a hosted API reports what it reuses is learned from its answers, and never said before they say it."""

import json
import logging
from contextlib import suppress

import httpx
import pytest

from engine_adapters.base import ReuseReport
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.learned import ENOUGH, LearnedReuse
from gateway.relay.remote import Remote
from gateway.surface.routes import path_of
from tests.gateway.relay.fake_engine import DONE, FINISH, MODEL, content, fake_engine, usage_event, whole
from tests.gateway.relay.serving import Relaying, relaying

UNTOLD = ReuseReport(20, None, None, "", "not_reported")
TOLD = ReuseReport(20, 0, None, "usage", "reported")
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


def test_nothing_is_said_before_an_answer_came_nor_after_a_few_that_did_not_say():
    learned = LearnedReuse()
    assert (learned.verdict, learned.answers) == ("unknown", 0)
    for _ in range(ENOUGH - 1):
        learned.take(UNTOLD)
    assert learned.verdict == "unknown"
    learned.take(UNTOLD)
    assert (learned.verdict, learned.answers, learned.reported) == ("not_reported", ENOUGH, 0)
    learned.take(TOLD)  # some leave out a zero
    assert learned.verdict == "reports"


def learned(gateway: Relaying) -> LearnedReuse:
    return gateway.served.remotes[0].learned


def ask(gateway: Relaying, times: int = 1, route: str = "chat", **more: object) -> None:
    for _ in range(times):
        gateway.http.post(path_of(route), json=CHAT | more)


def test_an_api_that_reports_is_known_after_its_first_answer_streamed_or_not(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO, "kvgate.gateway")

    def script(connection, asked) -> None:
        if not asked.body.get("stream"):
            connection.reply(whole(0))
            return
        connection.stream()
        connection.chunk(content("Hi") + FINISH + usage_event(0) + DONE)
        connection.end()

    with fake_engine(script) as engine, relaying([_remote(engine.url)]) as gateway:
        remote = gateway.served.remotes[0]
        assert (learned(gateway).verdict, remote.reports_reuse) == ("unknown", None)
        ask(gateway)
        assert (learned(gateway).verdict, remote.reports_reuse) == ("reports", True)
        ask(gateway, stream=True)
        assert (learned(gateway).answers, learned(gateway).reported) == (2, 2)
        said = [each for each in caplog.records if "as its answers show" in each.getMessage()]
        assert len(said) == 1


def test_an_api_that_never_reports_is_told_of_once_after_some_answers(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "kvgate.gateway")
    with (
        fake_engine(lambda connection, _: connection.reply(whole(None))) as engine,
        relaying([_remote(engine.url)]) as gateway,
    ):
        ask(gateway, ENOUGH + 3)
        assert (learned(gateway).verdict, learned(gateway).answers) == ("not_reported", ENOUGH + 3)
        assert gateway.served.remotes[0].reports_reuse is None  # it may still
        (said,) = [each for each in caplog.records if "HAS NOT REPORTED" in each.getMessage()]
        assert said.fields == {"engine": "fake", "answers": ENOUGH}


def test_refusals_cut_streams_and_answers_to_no_prompt_teach_nothing():
    def script(connection, asked) -> None:
        if asked.path.endswith("/embeddings"):
            connection.reply(json.dumps({"data": [], "usage": {"prompt_tokens": 3}}).encode())
            return
        if not asked.body.get("stream"):
            connection.reply(b'{"error": {"message": "no"}}', "400 Bad Request")
            return
        connection.stream()
        connection.chunk(content("Hi"))
        connection.reset()

    with fake_engine(script) as engine, relaying([_remote(engine.url)]) as gateway:
        ask(gateway)
        ask(gateway, route="embeddings", input="Hi")
        with suppress(httpx.HTTPError):  # or a 500, where even its beginning was lost
            ask(gateway, stream=True)
        gateway.rows.last(3)  # it has ended here, too
        assert (learned(gateway).answers, learned(gateway).verdict) == (0, "unknown")


def _remote(url: str) -> Remote:
    return Remote(OpenAICompatibleEngine("fake", url, (MODEL,)))
