"""/metrics of a gateway over engines behind HTTP."""

import json

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from tests.gateway.relay.fake_engine import (
    DONE,
    FINISH,
    Asked,
    Connection,
    content,
    fake_engine,
    usage_event,
    whole,
)
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.replicas.fleet import BODY, CHAT, fleet_of
from tests.gateway.replicas.test_retries import answering
from tests.gateway.telemetry.scraped import scrape

BY_REUSE = "kvgate_requests_by_reuse_total"


def saying(cached: int | None):
    def script(connection: Connection, asked: Asked) -> None:
        if not asked.body.get("stream"):
            connection.reply(whole(cached))
            return
        connection.stream()
        for chunk in (content("a"), content("b"), FINISH, usage_event(cached), DONE):
            connection.chunk(chunk)
        connection.end()

    return script


def far(url: str) -> Remote:
    return Remote(OpenAICompatibleEngine("far", url, ("fake-1",)), {"mine": "fake-1"})


def ask(gateway: Relaying, **fields: object) -> int:
    body = {"model": "mine", "messages": [{"role": "user", "content": "a"}], **fields}
    return gateway.http.post("/v1/chat/completions", json=body).status_code


def test_what_another_engine_reports_is_counted_under_its_name() -> None:
    with fake_engine(saying(8)) as engine, relaying([far(engine.url)]) as gateway:
        assert [ask(gateway), ask(gateway, stream=True)] == [200, 200]
        seen = scrape(gateway.http)
    who = {"kvgate_engine": "far", "gen_ai_request_model": "mine"}
    assert seen.value("kvgate_reused_tokens_total", **who) == 16
    assert seen.value("kvgate_recomputed_tokens_total", **who) == 24
    assert seen.value("gen_ai_client_inference_usage_output_tokens_total", **who) == 4
    assert seen.value("gen_ai_server_time_to_first_token_seconds_count", **who) == 1  # the stream's
    assert seen.all("kvgate_reused_tokens_by_tier_total") == []


def test_an_engine_that_does_not_report_is_no_cold_engine() -> None:
    with fake_engine(saying(None)) as engine, relaying([far(engine.url)]) as gateway:
        ask(gateway)
        seen = scrape(gateway.http)
    assert seen.labels(BY_REUSE, "kvgate_reuse_class") == {"not_reported": 1}
    assert seen.all("kvgate_reused_tokens_total") == []


def test_several_choices_or_prompts_say_nothing_of_the_time_a_token_takes() -> None:
    with fake_engine(saying(8)) as engine, relaying([far(engine.url)]) as gateway:
        ask(gateway, stream=True, n=2)
        fields = {"model": "mine", "prompt": ["a", "b"], "stream": True}
        gateway.http.post("/v1/completions", json=fields)
        assert scrape(gateway.http).all("gen_ai_server_time_per_output_token_seconds_count") == []
        ask(gateway, stream=True)
        assert scrape(gateway.http).value("gen_ai_server_time_per_output_token_seconds_count") == 1


def test_engines_are_up_or_down_or_not_asked() -> None:
    with fake_engine(saying(8)) as engine:
        asked = Remote(OpenAICompatibleEngine("asked", engine.url))
        gone = Remote(OpenAICompatibleEngine("gone", "http://127.0.0.1:9"))
        paid = Remote(OpenAICompatibleEngine("paid", "http://127.0.0.1:9", ("other",)))
        with relaying([asked, gone, paid]) as gateway:
            up = scrape(gateway.http).labels("kvgate_engine_up", "kvgate_engine")
    assert up == {"asked": 1, "gone": 0}


def test_a_refusal_of_the_engine_is_no_answer_without_a_report() -> None:
    def refusing(connection: Connection, _: Asked) -> None:
        connection.reply(json.dumps({"error": {"message": "no"}}).encode(), "400 Bad Request")

    with fake_engine(refusing) as engine, relaying([far(engine.url)]) as gateway:
        assert ask(gateway) == 400
        seen = scrape(gateway.http)
    assert seen.all(BY_REUSE) == []
    assert seen.value("kvgate_requests_total", status="400", outcome="refused", kvgate_engine="far") == 1


def test_replicas_have_series_of_their_own_until_they_leave() -> None:
    with fleet_of([answering("503 Service Unavailable"), saying(8)]) as fleet:
        for _ in range(2):
            assert fleet.gateway.http.post(CHAT, json=BODY).status_code == 200
        seen = scrape(fleet.gateway.http)
        assert seen.value("kvgate_retries_total", kvgate_engine="fleet", reason="503") == sum(
            fleet.pool.retries.values()
        )
        assert seen.labels("kvgate_replicas", "state") == {"ready": 2, "away": 0, "ejected": 0}
        assert seen.labels("kvgate_replica_breaker_state", "kvgate_replica") == {"fleet/r0": 0, "fleet/r1": 0}
        for _ in range(30):
            fleet.gateway.http.post(CHAT, json=BODY)
        seen = scrape(fleet.gateway.http)
        assert seen.value("kvgate_replica_breaker_state", kvgate_replica="fleet/r0") == 2
        assert seen.value("kvgate_replica_ejected", kvgate_replica="fleet/r0") == 1
        assert seen.value("kvgate_replica_ejections_total", reason="failures_in_a_row") == 1

        async def leave() -> None:
            fleet.pool._retire(fleet.pool.members[0])

        fleet.gateway.on_loop(leave())
        assert list(scrape(fleet.gateway.http).labels("kvgate_replica_breaker_state", "kvgate_replica")) == [
            "fleet/r1"
        ]
