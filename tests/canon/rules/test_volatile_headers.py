from typing import Any

import pytest

import canon

PROSE = "You are the help desk of a bicycle shop."


def system_of(system: Any) -> Any:
    body = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]}
    return canon.canonicalize(body, policy="full").body["messages"][0]["content"]


@pytest.mark.parametrize(
    "header",
    [
        "x-anthropic-billing-header: cc_version=9.9.1.0aa; cc_entrypoint=cli; cch=1f2e3;",
        "X-Request-Id: 8f14e45f",
        "x-amzn-trace-id: Root=1-67891233-abcdef012345678912345678;Parent=463ac35c9f6413ad;Sampled=1",
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\ntracestate: rojo=00f067aa0ba902b7",
    ],
)
def test_headers_at_the_start_move(header: str):
    assert system_of(f"{header}\n{PROSE}") == PROSE
    assert system_of(f"{header}\n\n{PROSE}") == PROSE
    part = {"type": "text", "text": PROSE}
    assert system_of([{"type": "text", "text": header}, part]) == [part]


@pytest.mark.parametrize(
    "line", ["x-rule: never name a price", "Content-Type: application/json", "X-mas: closed"]
)
def test_a_line_of_prose_is_no_header(line: str):
    assert system_of(f"{line}\n{PROSE}") == f"{line}\n{PROSE}"


def test_a_header_further_down_is_not_at_the_start():
    text = f"{PROSE}\nx-acme-build: a=1; b=2;"
    assert system_of(text) == text
