import pytest

from canon import canonicalize
from canon.errors import PolicyError
from canon.policy import RULES, Policy, lower
from canon.rules import APPLY


def test_under_off_nothing_runs_and_under_observe_all_that_full_does_without_applying_it():
    assert not any(Policy.named("off").runs(rule) for rule in RULES)
    assert Policy.named("observe").modes == Policy.named("full").modes
    assert Policy.named("full").applies
    assert not Policy.named("observe").applies


def test_safe_acts_on_less_than_full_and_reports_the_rest():
    safe, full = Policy.named("safe"), Policy.named("full")
    acting = {rule for rule in RULES if safe.acts(rule)}
    assert acting < {rule for rule in RULES if full.acts(rule)}
    assert all(safe.runs(rule) for rule in RULES)


def test_single_rules_are_switched_and_the_named_policy_stays():
    switched = Policy.named("full").with_rules({"dynamic_values": "off"})
    assert not switched.runs("dynamic_values")
    assert Policy.named("full").acts("dynamic_values")


def test_a_policy_is_written_with_its_switches():
    written = Policy.parse("safe,json_parts:act,newlines:off")
    assert written == Policy.named("safe").with_rules({"json_parts": "act", "newlines": "off"})
    assert Policy.parse("full") == Policy.named("full")
    result = {"role": "tool", "tool_call_id": "1", "content": '{"b": 1, "a": 2}'}
    body = {"messages": [{"role": "user", "content": "Hi"}, result]}
    assert canonicalize(body, "safe,json_parts:act").body["messages"][1]["content"] == '{"a":2,"b":1}'
    assert not canonicalize(body, "safe").changed


@pytest.mark.parametrize(
    "text", ["full,", "full,tool_order", "full,tool_order:on", "full,no:off", "off,newlines:act", ""]
)
def test_a_policy_written_otherwise_is_refused(text: str):
    with pytest.raises(PolicyError):
        Policy.parse(text)


@pytest.mark.parametrize("switches", [{"no_such_rule": "off"}, {"newlines": "perhaps"}])
def test_a_switch_that_does_not_exist_is_refused(switches: dict):
    with pytest.raises(PolicyError):
        Policy.named("full").with_rules(switches)


def test_a_client_may_lower_a_policy_and_never_raise_it():
    assert lower("full", "safe") == "safe"
    assert lower("safe", "full") == "safe"
    with pytest.raises(PolicyError):
        lower("safe", "everything")


def test_rules_run_in_the_order_in_which_they_are_listed():
    assert list(APPLY) == [rule for rule in RULES if rule in APPLY]


def test_a_policy_acts_only_by_rules_of_a_version_that_there_is():
    assert Policy.named("full").with_version(1) == Policy.named("full")
    with pytest.raises(PolicyError, match="there are 1"):
        Policy.named("full").with_version(2)


def test_a_lowered_policy_does_no_rule_more_than_either():
    full = Policy.named("full").with_rules({"json_in_text": "act", "newlines": "off"})
    safe = full.lowered("safe")
    assert safe.name == "safe"
    assert not safe.acts("json_in_text")
    assert not safe.runs("newlines")
    assert safe.acts("whitespace")
    assert not full.lowered("observe").applies
    assert not Policy.named("observe").lowered("full").applies
