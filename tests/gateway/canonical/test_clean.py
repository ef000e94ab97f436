"""A request that is known to be clean is told of as it was the first time, and no other request is taken for it."""

from typing import Any

import orjson
import pytest

from canon import Policy
from gateway.canonical.stage import CanonStage
from gateway.settings import CanonSettings
from gateway.transport.incoming import Incoming

SYSTEM = {"role": "system", "content": "Be brief."}


def asked(*messages: dict[str, Any], **more: Any) -> Incoming:
    body = {"model": "m", "messages": list(messages), **more}
    return Incoming(body, orjson.dumps(body))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def stage() -> CanonStage:
    return CanonStage(CanonSettings())


SAFE = Policy.named("safe")


def test_the_second_one_goes_on_as_it_came(stage: CanonStage) -> None:
    first = stage.apply(asked(SYSTEM, user("a")), SAFE, "s")
    incoming = asked(SYSTEM, user("b"))
    again = stage.apply(incoming, SAFE, "s")
    assert again.told is first.told
    assert (again.body, again.raw, again.recording) == (incoming.body, incoming.raw, None)


@pytest.mark.parametrize(
    "other",
    [
        asked({"role": "system", "content": "Be brief.\r\nNow. "}, user("b")),
        asked(SYSTEM, {"role": "system", "content": "late \n"}, user("b")),
        asked({"role": "developer", "content": "Be brief. \n"}, user("b")),
        asked(SYSTEM, user("b"), tools=[{"type": "function", "function": {"parameters": {}, "name": "x"}}]),
        asked({"role": "system", "content": [{"type": "text", "text": "a \n\n\n\nb"}]}, user("b")),
    ],
    ids=["other text", "one more", "another role", "tools", "parts"],
)
def test_another_request_is_gone_through(stage: CanonStage, other: Incoming) -> None:
    stage.apply(asked(SYSTEM, user("a")), SAFE, "s")
    fresh = CanonStage(CanonSettings()).apply(other, SAFE, "s")
    found = stage.apply(other, SAFE, "s")
    assert (found.body, found.raw, found.told) == (fresh.body, fresh.raw, fresh.told)


@pytest.mark.parametrize("text", ["It is 2026-01-31T12:00:00Z.", "a \nb"], ids=["a finding", "an edit"])
def test_what_canon_has_something_to_say_to_is_never_taken_for_clean(stage: CanonStage, text: str) -> None:
    request = asked({"role": "system", "content": text}, user("a"))
    first, second = (stage.apply(request, SAFE, "s") for _ in range(2))
    assert (first.told.edits, first.told.findings) == (second.told.edits, second.told.findings)
    assert second.told.edits or second.told.findings
    assert first.body == second.body


def test_another_policy_or_scope_is_another_request(stage: CanonStage) -> None:
    told = [
        stage.apply(asked(SYSTEM, user("a")), policy, scope).told
        for policy, scope in ((SAFE, "s"), (SAFE.with_rules({"newlines": "off"}), "s"), (SAFE, "t"))
    ]
    assert len({id(each) for each in told}) == 3
