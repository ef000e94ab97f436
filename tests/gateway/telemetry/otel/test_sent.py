"""Real requests through a real server: what an OTLP collector gets agrees with their answers."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from engine_adapters.base import Event, Finished, GenerateRequest, ReuseReport, ReuseStatus, TextDelta, Usage
from engine_adapters.errors import EngineFailureError
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from gateway.settings import GatewaySettings
from gateway.telemetry.buckets import TIME_TO_FIRST_TOKEN
from gateway.telemetry.otel.options import OtelOptions
from tests.gateway.relay.fake_engine import DONE, FINISH, Asked, Connection, content, fake_engine, usage_event
from tests.gateway.relay.serving import relaying
from tests.gateway.running_server import Running, running
from tests.gateway.scripted_engine import MODEL
from tests.gateway.telemetry.collector import ERROR, Collector, Sent, collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
CLIENT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
SECRET = "the prompt's own words"
STAGES = ["route", "canonicalize", "tokenize", "engine_queue", "first_token", "decode"]


@contextmanager
def sending(**only: bool) -> Iterator[tuple[Running, Collector]]:
    """A gateway whose telemetry has all arrived when the block has been left."""
    with collector() as kept:
        options = OtelOptions(**{"traces": True, "metrics": True, **only}, endpoint=kept.url)
        with running(GatewaySettings(otel=options)) as server:
            yield server, kept


def ask(server: Running, headers: dict[str, str] | None = None, **fields: object) -> dict[str, object]:
    body = {"model": MODEL, "messages": [{"role": "user", "content": SECRET * 5}], **fields}
    return server.http.post("/v1/chat/completions", json=body, headers=headers or {}).json()


def answer(reused: int | None, status: ReuseStatus = "reported"):
    tiers = {"device": reused} if reused is not None and status == "reported" else None
    report = ReuseReport(None, reused, tiers, "scripted", status)  # type: ignore[arg-type]

    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        yield TextDelta(0, "a")
        yield TextDelta(0, "b")
        yield Finished(0, "stop")
        yield Usage(len(request.prompt_ids), 2, report, queue_s=0.0)

    return script


def test_one_span_a_stage_below_one_of_the_whole_request() -> None:
    with sending() as (server, kept):
        server.engine.script = answer(48)
        told = ask(server)["usage"]
    (whole,) = kept.servers()
    stages = kept.below(whole)
    assert sorted(span.name for span in stages) == sorted(STAGES)
    assert whole.name == f"chat {MODEL}"
    assert all(whole.start <= span.start <= span.end <= whole.end for span in stages)
    assert [span.name for span in sorted(stages, key=lambda span: (span.start, span.end))] == STAGES
    assert {span.trace_id for span in stages} == {whole.trace_id}
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "kvgate",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": told["prompt_tokens"],
        "gen_ai.usage.output_tokens": told["completion_tokens"],
        "gen_ai.usage.cache_read.input_tokens": told["prompt_tokens_details"]["cached_tokens"],
        "kvgate.reuse.status": "reported",
        "kvgate.reuse.class": "partial",
        "kvgate.reuse.recomputed_tokens": told["prompt_tokens"] - 48,
        "kvgate.reuse.device_tokens": 48,
        "kvgate.engine": "embedded",
        "http.response.status_code": 200,
    }
    assert expected.items() <= whole.attributes.items()
    assert kept.resources[0]["service.name"] == "kvgate"


@pytest.mark.parametrize("status", ["not_reported", "inconsistent"])
def test_unknown_reuse_is_left_out_and_said_to_be_unknown(status: ReuseStatus) -> None:
    given = None if status == "not_reported" else 10_000
    with sending() as (server, kept):
        server.engine.script = answer(given, status)
        ask(server)
    (whole,) = kept.servers()
    assert "gen_ai.usage.cache_read.input_tokens" not in whole.attributes
    assert "kvgate.reuse.recomputed_tokens" not in whole.attributes
    assert whole.attributes["kvgate.reuse.status"] == status
    assert whole.attributes.get("kvgate.reuse.reused_tokens") == given
    assert "gen_ai.client.inference.usage.cache_read.input_tokens" not in kept.points
    assert kept.total("kvgate.requests_by_reuse", kvgate__reuse__status=status) == 1


def test_a_reported_zero_is_sent_as_zero() -> None:
    with sending() as (server, kept):
        server.engine.script = answer(0)
        ask(server)
    (whole,) = kept.servers()
    assert whole.attributes["gen_ai.usage.cache_read.input_tokens"] == 0
    assert "gen_ai.client.inference.usage.cache_read.input_tokens" in kept.points


def test_metrics_are_histograms_and_counters_that_agree_with_usage() -> None:
    with sending(traces=False) as (server, kept):
        server.engine.script = answer(48)
        prompt = [ask(server)["usage"]["prompt_tokens"] for _ in range(3)]  # type: ignore[index]
    assert kept.spans == []
    assert kept.total("gen_ai.client.token.usage", gen_ai__token__type="input") == sum(prompt)
    assert kept.total("gen_ai.client.token.usage", gen_ai__token__type="output") == 6
    assert kept.total("gen_ai.client.inference.usage.input_tokens") == sum(prompt)
    assert kept.total("gen_ai.client.inference.usage.cache_read.input_tokens") == 144
    assert kept.total("kvgate.recomputed_tokens") == sum(prompt) - 144
    assert kept.total("kvgate.reused_tokens_by_tier", kvgate__tier="device") == 144
    (ttft,) = kept.points["gen_ai.server.time_to_first_token"]
    assert ttft.count == 3
    assert tuple(ttft.explicit_bounds) == TIME_TO_FIRST_TOKEN
    names = ("gen_ai.server.request.duration", "gen_ai.server.time_per_output_token")
    assert [kept.points[name][0].count for name in names] == [3, 3]


def test_a_request_joins_the_clients_trace_and_its_prompt_stays_as_it_was() -> None:
    with sending() as (server, kept):
        ask(server, CLIENT)
        ask(server)
        with_trace, without = server.engine.requests
    first, second = kept.servers()
    assert (first.trace_id, first.parent) == (TRACE, PARENT)
    assert second.parent == ""
    assert second.trace_id != TRACE
    assert list(with_trace.prompt_ids) == list(without.prompt_ids)
    assert with_trace.body == without.body


def test_no_text_of_prompts_or_of_unserved_names_is_sent() -> None:
    with sending() as (server, kept):
        ask(server)
        ask(server, model=SECRET)
    assert len(kept.servers()) == 2
    assert not any(SECRET.encode() in body for body in kept.raw)


def test_failures_are_errors_and_refusals_say_their_kind() -> None:
    async def failing(_: GenerateRequest) -> AsyncIterator[Event]:
        raise EngineFailureError("broken")
        yield

    with sending() as (server, kept):
        server.engine.script = failing
        ask(server)
        ask(server, messages=[])
    failed, refused = kept.servers()
    assert failed.status == ERROR
    assert failed.attributes["error.type"] == "engine_failure"
    assert [span.name for span in kept.below(failed)][-1] == "engine"
    assert refused.status != ERROR
    assert refused.attributes["error.type"]
    assert refused.attributes["http.response.status_code"] == 400
    assert "kvgate.reuse.status" not in refused.attributes
    assert kept.total("gen_ai.server.request.duration", error__type="engine_failure") > 0


def streamed(connection: Connection, _: Asked) -> None:
    connection.stream()
    for chunk in (content("a"), content("b"), FINISH, usage_event(8), DONE):
        connection.chunk(chunk)
    connection.end()


def relayed(options: OtelOptions | None, headers: dict[str, str]) -> Asked:
    """What the engine behind the gateway got."""
    with fake_engine(streamed) as engine:
        remote = Remote(OpenAICompatibleEngine("far", engine.url, ("fake-1",)))
        with relaying([remote], GatewaySettings(otel=options)) as gateway:
            body = {"model": "fake-1", "stream": True, "messages": [{"role": "user", "content": SECRET}]}
            assert gateway.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
            trace = gateway.rows.one().trace_id
        asked = next(one for one in engine.asked if one.path.endswith("/chat/completions"))
        assert (trace or "") in asked.headers.get("traceparent", "")
        assert TRACE.encode() not in asked.raw
        return asked


def test_an_engine_behind_http_joins_below_our_span() -> None:
    with collector() as kept:
        asked = relayed(OtelOptions(True, True, kept.url), CLIENT)
    (whole,) = kept.servers()
    version, trace, parent, flags = asked.headers["traceparent"].split("-")
    assert (version, trace, parent, flags) == ("00", TRACE, whole.id, "01")
    assert asked.headers["tracestate"] == "vendor=1"
    assert whole.attributes["kvgate.engine"] == "far"
    assert whole.attributes["gen_ai.usage.cache_read.input_tokens"] == 8
    assert {"route", "canonicalize", "first_token", "decode"} == {span.name for span in kept.below(whole)}


def test_without_a_clients_trace_the_engine_joins_one_of_ours() -> None:
    with collector() as kept:
        asked = relayed(OtelOptions(True, False, kept.url), {})
    (whole,) = kept.servers()
    assert asked.headers["traceparent"].startswith(f"00-{whole.trace_id}-{whole.id}-")


def test_without_opentelemetry_a_clients_trace_is_carried_on_as_it_came() -> None:
    asked = relayed(None, CLIENT)
    assert {name: asked.headers[name] for name in CLIENT} == CLIENT
    assert "traceparent" not in relayed(None, {}).headers


def test_what_the_client_does_not_sample_is_not_sent() -> None:
    with sending(metrics=False) as (server, kept):
        ask(server, {"traceparent": f"00-{TRACE}-{PARENT}-00"})
        ask(server)
    spans: list[Sent] = kept.servers()
    assert [span.trace_id == TRACE for span in spans] == [False]
