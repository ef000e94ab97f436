"""What holds for every request under every policy."""

import copy
import json
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canon import ConversationMemory, canonicalize
from canon.policy import RULES, Policy
from tests.canon.bodies import ANYTHING, BODIES, damaged_bodies

ALL = Policy.named("full").with_rules(dict.fromkeys(RULES, "act"))
POLICIES: list[str | Policy] = ["off", "observe", "safe", "full", ALL]
EXAMPLES = settings(max_examples=150, deadline=None)


def spelled(value: Any) -> str:
    return json.dumps(value)


@pytest.mark.parametrize("policy", POLICIES, ids=["off", "observe", "safe", "full", "all"])
@EXAMPLES
@given(body=st.one_of(BODIES, damaged_bodies()))
def test_it_is_deterministic_idempotent_and_leaves_its_input_alone(policy: str | Policy, body: Any) -> None:
    held = spelled(body)
    once = canonicalize(body, policy=policy)
    assert spelled(body) == held
    assert spelled(canonicalize(copy.deepcopy(body), policy=policy).body) == spelled(once.body)
    assert spelled(canonicalize(once.body, policy=policy).body) == spelled(once.body)
    assert once.changed == (once.body is not body)
    assert not [finding for finding in once.findings if finding.cause == "the rule failed"]
    if not once.edits:
        assert not once.changed


def parted(*texts: str) -> dict[str, Any]:
    system = [{"type": "text", "text": text} for text in texts]
    return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": ""}]}


FOUND = [  # by the tests above, once
    {"system": "Current time: 2031-04-05T06:07:08Z", "messages": [{"role": "user", "content": []}]},
    {"messages": [{"role": "system", "content": "\n\ufeff\ufeff"}]},
    {"messages": [{"role": "system", "content": "\ufeff\ufeffA."}]},
    {
        "messages": [
            {"role": "system", "content": "Current time: 2031-04-05T06:07:08Z\nx-billing-header: cch=1f2e3;"},
            {"role": "user", "content": ""},
        ]
    },
    {"messages": [{"type": []}]},
    {
        "system": "Current time: 2031-04-05T06:07:08Z\n\ufeff\u2028",
        "messages": [{"role": "user", "content": []}],
    },
]


@pytest.mark.parametrize("body", FOUND)
def test_what_once_broke_holds(body: dict[str, Any]) -> None:
    for policy in POLICIES:
        once = canonicalize(body, policy=policy)
        assert spelled(canonicalize(once.body, policy=policy).body) == spelled(once.body)
        assert not [finding for finding in once.findings if finding.cause == "the rule failed"]


@EXAMPLES
@given(body=damaged_bodies(), memory=st.booleans())
def test_any_json_value_in_any_place_gives_an_answer(body: Any, memory: bool) -> None:
    result = canonicalize(body, policy=ALL, memory=ConversationMemory() if memory else None, scope="s")
    assert not [finding for finding in result.findings if finding.cause == "the rule failed"]


@given(body=ANYTHING)
def test_any_json_value_for_a_body_comes_back(body: Any) -> None:
    result = canonicalize(body, policy="full")
    assert spelled(result.body) == spelled(body) or result.edits
    assert result.edits or isinstance(body, dict) or result.findings


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def letters(body: Any) -> Counter[str]:
    text = unicodedata.normalize("NFC", "".join(strings(body)).replace("\\u00e9", "é"))
    return Counter(character for character in text if character.isalnum())


@EXAMPLES
@given(body=BODIES)
def test_nothing_written_is_lost(body: dict[str, Any]) -> None:
    assert not letters(body) - letters(canonicalize(body, policy=ALL).body)


def others(body: dict[str, Any]) -> list[Any]:
    """What no rule may touch: assistant turns, calls, late system messages, and what is unknown."""
    turns = [turn for turn in body.get("messages", body.get("input", [])) if isinstance(turn, dict)]
    leading = 0
    while leading < len(turns) and turns[leading].get("role") in ("system", "developer"):
        leading += 1
    late = [turn for turn in turns[leading:] if turn.get("role") in ("system", "developer", "assistant")]
    calls = [turn for turn in turns if turn.get("type") == "function_call"]
    rest = {
        key: body[key] for key in body if key not in ("messages", "input", "system", "instructions", "tools")
    }
    return [late, calls, rest]


@EXAMPLES
@given(body=BODIES)
def test_what_no_rule_may_touch_is_untouched(body: dict[str, Any]) -> None:
    assert spelled(others(canonicalize(body, policy="full").body)) == spelled(others(body))


@EXAMPLES
@given(body=BODIES)
def test_tools_are_the_same_but_for_their_order(body: dict[str, Any]) -> None:
    made = canonicalize(body, policy="full").body
    assert sorted(map(canonical, made.get("tools", []))) == sorted(map(canonical, body.get("tools", [])))


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
