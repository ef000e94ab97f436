"""The engine in this process is accounted for as all others are."""

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from msgspec.structs import asdict

from engine_adapters.base import Finished, ReuseReport, TextDelta, Usage
from engine_adapters.errors import EngineFailureError
from gateway.ledger.accounting import row_of
from gateway.ledger.expectation import Expectation, SentRequest
from gateway.ledger.row import Divergence, GapCause
from gateway.routing.router import Decision, Score
from gateway.served import Backend
from gateway.tenants.tenant import DEFAULT
from gateway.transport.record import CanonTold, RequestRecord
from gateway.transport.trace_context import TraceContext
from tests.gateway.relay.serving import Relaying, relaying
from tests.gateway.scripted_engine import CONTEXT, MODEL, BytePrompts, ScriptedEngine, events, reuse

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hi there"}]
PROMPT = len("user: Hi there\n")
FULL = {"x-kvgate-usage": "full"}
REPORT = ReuseReport(PROMPT, 12, {"device": 8, "host": 4}, "embedded", "reported")


@pytest.fixture
def gateway() -> Iterator[Relaying]:
    script = events(TextDelta(0, "x"), Finished(0, "length"), Usage(PROMPT, 1, REPORT, 0, matched_tokens=14))
    with relaying([], backend=Backend(ScriptedEngine(script), BytePrompts())) as it:
        yield it


def engine_of(gateway: Relaying) -> ScriptedEngine:
    engine = gateway.served.current().engine
    assert isinstance(engine, ScriptedEngine)
    return engine


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_has_a_row(gateway: Relaying, stream: bool) -> None:
    body = {"model": MODEL, "messages": USER, "stream": stream}
    answer = gateway.http.post(CHAT, json=body, headers={"x-request-id": "r-1"})
    row = gateway.rows.one()
    assert (row.id, row.tenant, row.model, row.route, row.engine) == (
        "r-1",
        "default",
        MODEL,
        "chat",
        "embedded",
    )
    assert (row.prompt, row.matched, row.reused, row.recomputed) == (PROMPT, 14, 12, PROMPT - 12)
    assert row.by_tier == {"device": 8, "host": 4}
    assert (row.completion, row.reasoning, row.finish, row.status) == (1, 0, "length", 200)
    assert (row.reuse_status, row.reuse_source, row.block_size) == ("reported", "embedded", 16)
    assert (row.stream, row.canon_policy, row.error) == (stream, "safe", None)
    assert row.canon_rules is not None
    assert row.arrival <= row.first_token <= row.end
    assert answer.headers.get("x-kvgate-reuse") == (
        None if stream else f"reported; reused=12; prompt={PROMPT}"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_the_whole_account_comes_with_the_header(gateway: Relaying, stream: bool) -> None:
    ask = gateway.sdk.chat.completions.create
    answer = ask(model=MODEL, messages=USER, stream=stream, extra_headers=FULL)
    usage = list(answer)[-1].usage if stream else answer.usage
    assert usage.kvgate == {
        "reused": 12,
        "recomputed": PROMPT - 12,
        "by_tier": {"device": 8, "host": 4},
        "status": "reported",
        "source": "embedded",
        "predicted": None,
        "block_size": 16,
        "canon_edits": 0,
    }
    plain = gateway.http.post(CHAT, json={"model": MODEL, "messages": USER}).json()["usage"]
    assert "kvgate" not in plain


def test_several_prompts_add_up_and_one_that_does_not_say_leaves_all_unknown(gateway: Relaying) -> None:
    body = {"model": MODEL, "prompt": ["one", "two"]}
    said = [REPORT, reuse(None, "not_reported")]

    async def script(request):
        yield Finished(0, "stop")
        yield Usage(PROMPT, 1, said[len(engine_of(gateway).requests) - 1])

    both = gateway.http.post(COMPLETIONS, json=body, headers=FULL).json()["usage"]["kvgate"]
    assert (both["reused"], both["by_tier"]) == (24, {"device": 16, "host": 8})
    engine_of(gateway).script = script
    engine_of(gateway).requests.clear()
    mixed = gateway.http.post(COMPLETIONS, json=body, headers=FULL).json()["usage"]["kvgate"]
    assert (mixed["reused"], mixed["by_tier"], mixed["status"]) == (None, None, "not_reported")
    row = gateway.rows.last(2)
    assert (row.prompt, row.reused, row.reuse_status) == (2 * PROMPT, None, "not_reported")


def test_refusals_and_failures_have_rows_too(gateway: Relaying) -> None:
    def post(**fields):
        gateway.http.post(CHAT, json={"model": MODEL, "messages": USER, **fields})

    async def fails(request):
        yield TextDelta(0, "x")
        raise EngineFailureError("broken")

    post(temperature=9)
    post(messages=[{"role": "user", "content": "x" * CONTEXT}])
    engine_of(gateway).script = fails
    post()
    with pytest.raises(httpx.RemoteProtocolError):
        post(stream=True)
    found = [(row.status, row.error, row.reused) for row in (gateway.rows.last(n) for n in range(1, 5))]
    assert found == [
        (400, "invalid_value", None),
        (400, "context_length_exceeded", None),
        (500, "engine_failure", None),
        (200, "engine_failure", None),
    ]


def test_what_is_no_generation_has_no_row(gateway: Relaying) -> None:
    for path in ("/v1/models", "/health", "/nothing"):
        gateway.http.get(path)
    assert gateway.rows.kept == []


def test_no_row_expects_more_than_the_prompt_that_the_engine_counted() -> None:
    record = RequestRecord("r-1", "POST", CHAT)
    record.reuse = ReuseReport(121, 111, None, "usage", "reported")
    record.expected = Expectation(predicted=122)  # estimated before the engine had counted
    record.block_size = 1
    assert row_of(record).predicted == 120


class Evicted:
    """A predictor that knows one cause."""

    def expect(self, request: SentRequest) -> Expectation:
        return Expectation()

    def forget(self) -> None:
        pass

    def cause(self, expected: Expectation, reuse: ReuseReport) -> GapCause:
        return "evicted"


def test_each_fact_is_in_the_column_of_its_name() -> None:
    record = RequestRecord("id", "POST", "/v1/chat/completions", started=5.0, arrival=1_000.0, ended=7.5)
    record.route, record.tenant, record.model = "route", replace(DEFAULT, name="tenant"), "model"
    record.engine, record.replica, record.block_size, record.stream = "engine", "replica", 16, True
    record.retries, record.attempts, record.status, record.ttft_s = 3, 4, 207, 0.5
    record.prompt_tokens, record.matched_tokens, record.completion_tokens = 99, 70, 30
    record.reasoning_tokens, record.finish, record.error = 20, "finish", "error"
    record.reuse = ReuseReport(100, 60, {"device": 50, "disk": 10}, "source", "reported")
    gone = Divergence("path", 1, "cause", "hash")
    record.expected = Expectation(predicted=80, saved=40, divergence=gone)
    record.canon = CanonTold("policy", 9, edits={"rule": 2, "other": 5})
    record.routed = Decision("replica", "reason", (Score("replica", predicted=80, queued=0, ttft_s=None),))
    record.trace = TraceContext("trace")
    assert asdict(row_of(record, Evicted())) == {
        "id": "id", "tenant": "tenant", "model": "model", "route": "route", "engine": "engine", "replica": "replica",
        "arrival": 1_000.0, "first_token": 1_000.5, "end": 1_002.5, "stream": True, "status": 207, "prompt": 100,
        "reused": 60, "by_tier": {"device": 50, "disk": 10}, "matched": 70, "completion": 30, "reasoning": 20,
        "reuse_status": "reported", "reuse_source": "source", "predicted": 80, "block_size": 16,
        "gap_cause": "evicted", "canon_policy": "policy", "canon_rules": 9, "canon_edits": 7, "canon_saved": 40,
        "divergence": gone, "retries": 3, "attempts": 4, "route_reason": "reason",
        "route_scores": '{"replica":[80,0,null]}', "finish": "finish", "error": "error", "trace_id": "trace",
    }  # fmt: skip
