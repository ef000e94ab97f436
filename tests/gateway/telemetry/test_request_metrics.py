"""What /metrics says after real requests: it agrees with their answers, and what is not known is not 0."""

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from engine_adapters.base import Event, Finished, GenerateRequest, ReuseReport, ReuseStatus, TextDelta, Usage
from engine_adapters.errors import EngineFailureError
from gateway.canonical.policies import PolicyFor
from gateway.settings import CanonSettings
from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL, Script, reuse
from tests.gateway.telemetry.scraped import Scraped, scrape

INPUT = "gen_ai_client_inference_usage_input_tokens_total"
OUTPUT = "gen_ai_client_inference_usage_output_tokens_total"
BY_REUSE = "kvgate_requests_by_reuse_total"
TTFT = "gen_ai_server_time_to_first_token_seconds"
SECRET = "the prompt's own words"


@pytest.fixture
def fresh(serve_with: Callable[..., Running]) -> Running:
    return serve_with()


def chat(server: Running, text: str = SECRET, **fields: object) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
    return server.http.post("/v1/chat/completions", json=body)


def answering(report: Callable[[GenerateRequest], ReuseReport], completion: int = 2) -> Script:
    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        for index in range(request.sampling.n):
            yield TextDelta(index, "word")
            yield Finished(index, "stop")
        yield Usage(len(request.prompt_ids), completion, report(request))

    return script


def test_figures_agree_with_the_usage_of_answers(fresh: Running) -> None:
    tiers = {"device": 32, "host": 16}
    told = ReuseReport(None, 48, tiers, "scripted", "reported")  # type: ignore[arg-type]
    fresh.engine.script = answering(lambda _: told, completion=7)
    usages = [chat(fresh, "x" * 100).json()["usage"] for _ in range(3)]
    seen = scrape(fresh.http)
    prompt = sum(usage["prompt_tokens"] for usage in usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert cached == 144
    assert seen.value(INPUT, gen_ai_request_model=MODEL, kvgate_engine="embedded") == prompt
    assert seen.value(OUTPUT) == 21
    assert seen.value("kvgate_reused_tokens_total") == cached
    assert seen.value("kvgate_recomputed_tokens_total") == prompt - cached
    assert seen.labels("kvgate_reused_tokens_by_tier_total", "kvgate_tier") == {"device": 96, "host": 48}
    assert seen.value("gen_ai_client_token_usage_sum", gen_ai_token_type="input") == prompt
    assert seen.value("gen_ai_client_token_usage_count", gen_ai_token_type="output") == 3
    assert seen.labels(BY_REUSE, "kvgate_reuse_class") == {"partial": 3}
    assert seen.value(f"{TTFT}_count", kvgate_reuse_class="partial") == 3
    assert seen.value("gen_ai_server_time_per_output_token_seconds_count") == 3
    assert seen.value("gen_ai_server_request_duration_seconds_count", outcome="ok") == 3


def test_a_stream_counts_like_a_whole_answer(fresh: Running) -> None:
    fresh.engine.script = answering(lambda _: reuse(16))
    usage = chat(fresh).json()["usage"]
    chat(fresh, stream=True)
    seen = scrape(fresh.http)
    assert seen.value(INPUT) == 2 * usage["prompt_tokens"]
    assert seen.value("kvgate_reused_tokens_total") == 32
    assert seen.value("kvgate_requests_total", status="200", outcome="ok") == 2


@pytest.mark.parametrize("status", ["not_reported", "inconsistent"])
def test_unknown_reuse_is_no_zero(fresh: Running, status: ReuseStatus) -> None:
    given = None if status == "not_reported" else 10_000
    fresh.engine.script = answering(lambda _: reuse(given, status))
    assert chat(fresh).status_code == 200
    seen = scrape(fresh.http)
    assert seen.all("kvgate_reused_tokens_total") == []
    assert seen.all("kvgate_recomputed_tokens_total") == []
    assert seen.labels("kvgate_reuse_reports_total", "kvgate_reuse_status") == {status: 1}
    assert seen.labels(BY_REUSE, "kvgate_reuse_class") == {status: 1}
    assert seen.value(INPUT) > 0


def test_a_reported_zero_is_a_zero(fresh: Running) -> None:
    fresh.engine.script = answering(lambda _: reuse(0))
    usage = chat(fresh).json()["usage"]
    seen = scrape(fresh.http)
    assert seen.all("kvgate_reused_tokens_total") == [0]
    assert seen.value("kvgate_recomputed_tokens_total") == usage["prompt_tokens"]
    assert seen.labels(BY_REUSE, "kvgate_reuse_class") == {"cold": 1}


def test_a_rate_over_reused_and_recomputed_is_of_the_same_requests(fresh: Running) -> None:
    reports = iter([reuse(16), reuse(None, "not_reported"), reuse(16)])
    fresh.engine.script = answering(lambda _: next(reports))
    usages = [chat(fresh, "x" * 100).json()["usage"] for _ in range(3)]
    seen = scrape(fresh.http)
    prompt = usages[0]["prompt_tokens"]
    assert seen.value("kvgate_reused_tokens_total") == 32
    assert seen.value("kvgate_recomputed_tokens_total") == 2 * prompt - 32
    assert seen.value(INPUT) == 3 * prompt


def test_failures_are_counted_as_what_they_are(fresh: Running) -> None:
    async def failing(_: GenerateRequest) -> AsyncIterator[Event]:
        raise EngineFailureError("broken")
        yield

    fresh.engine.script = failing
    assert chat(fresh).status_code == 500
    assert chat(fresh, messages=[]).status_code == 400
    assert fresh.http.post("/v1/chat/completions", content=b"{").status_code == 400
    seen = scrape(fresh.http)
    assert seen.value("kvgate_requests_total", status="500", outcome="failed", kvgate_engine="embedded") == 1
    assert seen.value("kvgate_requests_total", status="400", outcome="refused") == 2
    assert seen.all(BY_REUSE) == []
    assert seen.all(f"{TTFT}_count") == []


def test_a_stream_that_breaks_before_its_usage_is_one_without_a_report(fresh: Running) -> None:
    async def breaking(_: GenerateRequest) -> AsyncIterator[Event]:
        yield TextDelta(0, "a")
        raise EngineFailureError("broken")

    fresh.engine.script = breaking
    with pytest.raises(httpx.RemoteProtocolError):
        chat(fresh, stream=True)
    seen = scrape(fresh.http)
    assert seen.value("kvgate_requests_total", status="200", outcome="aborted") == 1
    assert seen.labels(BY_REUSE, "kvgate_reuse_class") == {"not_reported": 1}
    assert seen.all(OUTPUT) == []


def test_what_clients_call_a_model_is_no_label_unless_it_is_served(fresh: Running) -> None:
    for name in ("mine", "yours", SECRET, MODEL):
        chat(fresh, model=name)
    for path in ("/v1/nothing", "/v1/models", "/health"):
        fresh.http.get(path)
    seen = scrape(fresh.http)
    counted = {one.labels["gen_ai_request_model"] for one in seen.samples if "kvgate_engine" in one.labels
               and "gen_ai_request_model" in one.labels}  # fmt: skip
    assert counted == {"other", MODEL}
    assert seen.value("kvgate_requests_total", gen_ai_request_model="other", kvgate_engine="none") == 3
    assert seen.value("kvgate_requests_total") == 4


def test_no_text_of_prompts_is_in_a_scrape(fresh: Running) -> None:
    chat(fresh, SECRET, model=SECRET)
    chat(fresh, SECRET)
    text = fresh.http.get("/metrics").text
    assert SECRET not in text
    assert "kvgate_requests_total" in text


def test_several_choices_say_nothing_of_the_time_a_token_takes(fresh: Running) -> None:
    fresh.engine.script = answering(lambda _: reuse(0), completion=8)
    assert chat(fresh, n=4).status_code == 200
    seen = scrape(fresh.http)
    assert seen.all("gen_ai_server_time_per_output_token_seconds_count") == []
    assert seen.value(OUTPUT) == 8


def test_edits_and_would_be_edits_are_counted_by_rule(serve_with: Callable[..., Running]) -> None:
    edited = {
        "messages": [{"role": "system", "content": "be kind \r\nand brief"}, {"role": "user", "content": "a"}]
    }
    acting = serve_with(canon=CanonSettings(policies=(PolicyFor("full"),)))
    watching = serve_with(canon=CanonSettings(policies=(PolicyFor("observe"),)))
    answers = [chat(server, **edited) for server in (acting, watching)]
    for server, answer, applied in zip((acting, watching), answers, ("true", "false"), strict=True):
        told = answer.headers["x-kvgate-canon"].split("; ")[2:]
        rules = {name: float(count) for name, count in (part.split("=") for part in told)}
        seen = scrape(server.http)
        assert rules
        assert seen.labels("kvgate_canon_edits_total", "rule") == rules
        assert seen.value("kvgate_canon_edits_total", applied=applied) == sum(rules.values())


def test_findings_are_counted_by_cause(serve_with: Callable[..., Running]) -> None:
    server = serve_with(canon=CanonSettings(policies=(PolicyFor("safe"),)))
    noted = [{"role": "system", "content": "Be kind.\nCurrent time: 2025-03-01 12:30:05"}]
    chat(server, messages=[*noted, {"role": "user", "content": "a"}])
    assert sum(scrape(server.http).labels("kvgate_canon_findings_total", "cause").values()) >= 1


def test_in_flight_requests_are_seen_by_a_scrape(fresh: Running) -> None:
    inside: list[Scraped] = []

    async def script(request: GenerateRequest) -> AsyncIterator[Event]:
        async with httpx.AsyncClient(base_url=fresh.url, timeout=60) as client:
            inside.append(Scraped((await client.get("/metrics")).text))
        yield Finished(0, "stop")
        yield Usage(len(request.prompt_ids), 1, reuse(0))

    fresh.engine.script = script
    assert chat(fresh).status_code == 200
    assert inside[0].value("kvgate_requests_in_flight") == 1
    assert inside[0].value("kvgate_body_bytes_in_flight") > 0
    assert scrape(fresh.http).value("kvgate_requests_in_flight") == 0


def test_openmetrics_is_spoken_to_who_asks_for_it(fresh: Running) -> None:
    chat(fresh)
    answer = fresh.http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert {family.name for family in openmetrics(answer.text)} >= {"kvgate_requests", "kvgate_engine_up"}
