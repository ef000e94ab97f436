"""Engines' refusals in the gateway's one shape, and engines that are not there."""

import json

import httpx
import pytest

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.errors import from_answer
from gateway.relay.remote import Remote
from tests.gateway.relay.fake_engine import MODEL, whole
from tests.gateway.relay.serving import relaying
from tests.ports import free_port
from tests.waiting import wait_until

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}

TOO_LONG = {
    "vLLM": {
        "error": {
            "message": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        }
    },
    "SGLang": {
        "object": "error",
        "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    },
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "request (9000 tokens) exceeds the available context size (8192 tokens)",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9000,
            "n_ctx": 8192,
        }
    },
    "Anthropic": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 9000 tokens > 8192 maximum",
        },
    },
}


@pytest.mark.parametrize("engine", TOO_LONG)
def test_context_overflow_has_one_code_whoever_says_it(engine: str) -> None:
    error = from_answer(400, json.dumps(TOO_LONG[engine]).encode(), {})
    assert (error.status, error.type, error.code) == (400, "invalid_request_error", "context_length_exceeded")
    assert "9000" in error.message


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            400,
            {"object": "error", "message": "bad n", "type": "BadRequestError", "param": "n", "code": 400},
            ("bad n", "invalid_request_error", "n", None),
        ),
        (
            404,
            {"error": {"message": "no such", "type": "NotFoundError", "param": None, "code": 404}},
            ("no such", "invalid_request_error", None, None),
        ),
        (
            429,
            {
                "error": {
                    "message": "slow down",
                    "type": "requests",
                    "param": None,
                    "code": "rate_limit_exceeded",
                }
            },
            ("slow down", "requests", None, "rate_limit_exceeded"),
        ),
        (503, {"error": "busy"}, ("busy", "service_unavailable", None, "engine_not_ready")),
        (
            422,
            {"detail": [{"loc": ["body", "n"], "msg": "must be an int", "type": "int_parsing"}]},
            ("body.n: must be an int", "invalid_request_error", None, None),
        ),
        (405, {"detail": "Method Not Allowed"}, ("Method Not Allowed", "invalid_request_error", None, None)),
        (
            529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            ("Overloaded", "overloaded_error", None, None),
        ),
        (
            502,
            b"<html>Bad Gateway</html>",
            ("The engine answered with status 502 and gave no reason.", "server_error", None, None),
        ),
        (
            500,
            [1],
            ("The engine answered with status 500 and gave no reason.", "server_error", None, None),
        ),
    ],
)
def test_other_shapes_become_ours(status: int, body: object, expected: tuple[object, ...]) -> None:
    error = from_answer(status, body if isinstance(body, bytes) else json.dumps(body).encode(), {})
    assert error.status == status
    told = error.body()["error"]
    assert (told["message"], told["type"], told["param"], told["code"]) == expected


@pytest.mark.parametrize("stream", [False, True])
def test_status_and_retry_after_are_kept(relay_to, stream: bool) -> None:
    pair = relay_to(lambda c, _: c.reply(b'{"error": "busy"}', "429 Too Many Requests", "retry-after: 17"))
    answer = pair.gateway.http.post(CHAT, json={**BODY, "stream": stream})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "17")
    assert answer.json() == {
        "error": {"message": "busy", "type": "rate_limit_error", "param": None, "code": "engine_overloaded"}
    }
    assert "x-kvgate-reuse" not in answer.headers
    row = pair.gateway.rows.one()
    assert (row.status, row.engine, row.error) == (429, "fake", "engine_overloaded")
    assert (row.prompt, row.reused, row.reuse_status) == (None, None, "not_reported")


def test_an_engine_that_breaks_off_before_its_answer_is_a_failure_of_ours_to_name(relay_to) -> None:
    pair = relay_to(lambda c, _: c.reset())
    answer = pair.gateway.http.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failure")


def test_a_whole_answer_that_is_cut_is_a_failure(relay_to) -> None:
    def script(connection, _):
        connection.head("200 OK", "application/json", "content-length: 1000")
        connection.send(whole(0))
        connection.reset()

    answer = relay_to(script).gateway.http.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failure")


@pytest.fixture
def nobody() -> str:
    return f"http://127.0.0.1:{free_port()}"


def test_an_engine_that_is_away_is_503_and_not_404(nobody: str) -> None:
    listed = Remote(OpenAICompatibleEngine("away", nobody, (MODEL,)), {MODEL: MODEL})
    with relaying([listed]) as gateway:
        answer = gateway.http.post(CHAT, json=BODY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_not_ready")
        assert answer.headers["retry-after"]
        assert nobody.rpartition(":")[2] not in answer.text
        assert gateway.rows.one().engine == "away"
    unlisted = Remote(OpenAICompatibleEngine("away", nobody))
    with relaying([unlisted]) as gateway:
        assert gateway.http.post(CHAT, json=BODY).status_code == 503
        assert gateway.http.get("/v1/models").status_code == 503
        ready = gateway.http.get("/ready")
        assert ready.status_code == 503
        assert "away" in ready.json()["error"]["message"]


def test_refused_requests_have_a_row_that_names_no_engine(relay_to) -> None:
    gateway = relay_to(None).gateway
    assert (
        gateway.http.post(CHAT, json={**BODY, "model": "other"}).json()["error"]["code"] == "model_not_found"
    )
    assert gateway.http.post(CHAT, content=b"{").status_code == 400
    assert gateway.http.post(CHAT, json={"messages": []}).json()["error"]["param"] == "model"
    wait_until(lambda: len(gateway.rows.kept) == 3, "three rows")
    found = [(row.engine, row.status, row.error) for row in gateway.rows.kept]
    assert found == [
        (None, 404, "model_not_found"),
        (None, 400, "invalid_json"),
        (None, 400, "missing_required_parameter"),
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": "yes"}, "stream"),
        ({"kvgate": {"pin_tll": 3}}, "kvgate.pin_tll"),
        ({"kvgate": {"pin_ttl": 1e6}}, "kvgate.pin_ttl"),
    ],
)
def test_what_the_gateway_itself_reads_is_checked_here(relay_to, fields: dict, param: str) -> None:
    pair = relay_to(None)
    answer = pair.gateway.http.post(CHAT, json={**BODY, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert pair.engine.asked == []


def test_a_redirect_is_not_followed(relay_to) -> None:
    pair = relay_to(lambda c, _: c.reply(b"", "307 Temporary Redirect", "location: http://127.0.0.1:9/"))
    answer: httpx.Response = pair.gateway.http.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failure")
    assert "location" not in answer.headers
