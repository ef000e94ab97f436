import pytest

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
