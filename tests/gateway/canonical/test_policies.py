"""The operator's policy counts; a client may only ask for less."""

import pytest

from canon.errors import PolicyError
from gateway.canonical.policies import Policies, PolicyFor, parse_policy


def test_policies_are_named_for_routes_and_models() -> None:
    assert parse_policy("full") == PolicyFor("full")
    assert parse_policy("chat=full") == PolicyFor("full", "chat")
    assert parse_policy("*/owner/model=off") == PolicyFor("off", None, "owner/model")
    assert parse_policy("completions/m=off") == PolicyFor("off", "completions", "m")


@pytest.mark.parametrize("text", [
    "best", "chat=best", "chats=full", "chat/=full", "=full", "",
    "full,tool_order", "full,tool_ordr:off", "full,tool_order:on", "full,", "off,tool_order:act",
])  # fmt: skip
def test_what_names_no_policy_or_route_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        parse_policy(text)


def test_single_rules_are_switched_for_a_route_and_a_model() -> None:
    chosen = parse_policy("chat/m=full,learned_slots:act,tool_order:off")
    assert chosen == PolicyFor("full", "chat", "m", {"learned_slots": "act", "tool_order": "off"})
    policies = Policies([chosen, parse_policy("full")])
    switched, other = policies.of("chat", "m", None), policies.of("chat", "n", None)
    assert (switched.acts("learned_slots"), switched.runs("tool_order")) == (True, False)
    assert (other.acts("learned_slots"), other.acts("tool_order")) == (False, True)


def test_the_most_specific_policy_counts_then_the_last() -> None:
    policies = Policies([parse_policy(text) for text in ("*/m=off", "chat=observe", "full", "safe")])
    assert policies.of("chat", "m", None).name == "off"
    assert policies.of("chat", "n", None).name == "observe"
    assert policies.of("completions", "n", None).name == "safe"
    assert Policies([]).of("chat", "n", None).name == "safe"


def test_a_client_lowers_and_never_raises() -> None:
    policies = Policies([PolicyFor("safe", rules={"tool_order": "act", "newlines": "off"})])
    for wanted, name in (("full", "safe"), ("safe", "safe"), ("observe", "observe"), ("off", "off")):
        assert policies.of("chat", "m", wanted).name == name
    lowered = policies.of("chat", "m", "full")
    assert lowered.acts("tool_order")
    assert not lowered.runs("newlines")
    assert not policies.of("chat", "m", "safe").acts("tool_order")
    assert not policies.of("chat", "m", "observe").applies
    with pytest.raises(PolicyError):
        policies.of("chat", "m", "best")
