"""Chance alone is called a leak once in a thousand examinations at most, and a leak by time alone is found."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gateway.reports.isolation.judging import LEAK_P, Trials, findings_of, suspicions_of
from gateway.reports.isolation.result import Finding
from gateway.reports.isolation.trial import Trial
from tests.gateway.reports.isolation.simulated import Machine

TIERS = ("device", "host", "disk")
TRIALS = 12
QUIET: dict[str, Any] = {"noise": 0.1, "drift": 0.01, "jumps": 0.0, "stumbles": 0.02}


def examined(machine: Machine, *, leak: float = 1.0) -> list[Finding]:
    """Three tiers, what is suspected again with twice the trials; a leak is on the last of them alone."""
    leaks = {tier: leak if tier == TIERS[-1] else 1.0 for tier in TIERS}
    tiers = {tier: Trials(machine.trials(TRIALS, other=leaks[tier])) for tier in TIERS}
    for tier in suspicions_of(tiers):
        tiers[tier] = replace(tiers[tier], again=machine.trials(2 * TRIALS, other=leaks[tier]))
    return findings_of(tiers, base=0)


def verdicts(findings: Sequence[Finding]) -> set[str]:
    return {each.verdict for each in findings}


@pytest.mark.parametrize("kind", [QUIET, {}, {"drift": 0.3, "jumps": 0.1}], ids=["quiet", "loaded", "drift"])
def test_tenants_that_are_apart_are_not_called_leaking_however_the_machine_staggers(kind: dict[str, Any]):
    runs, suspected, wrong = 1500, 0, 0
    for number in range(runs):
        found = examined(Machine(Random(number), **kind))
        suspected += any(each.suspicions for each in found)
        wrong += "leaks" in verdicts(found)
    assert 0.02 * runs < suspected < 0.08 * runs  # it was no idle test: three tiers at 0.02 each
    assert wrong <= LEAK_P * runs


@pytest.mark.parametrize(
    ("kind", "leak", "found_in"), [(QUIET, 2.0, 98), (QUIET, 1.5, 90), ({}, 2.0, 70)], ids=str
)
def test_a_leak_by_time_alone_on_one_of_three_tiers_is_found(
    kind: dict[str, Any], leak: float, found_in: int
):
    found = [examined(Machine(Random(number), **kind), leak=leak) for number in range(100)]
    assert sum("leaks" in verdicts(each) for each in found) >= found_in
    by = {(each.tier, each.by) for findings in found for each in findings if each.verdict == "leaks"}
    assert by == {("disk", ("times",))}
    assert not any(each[-1].verdict == "isolated" for each in found)


def one(first: Sequence[Trial], again: Sequence[Trial] = ()) -> Finding:
    (found,) = findings_of({"device": Trials(first, again)}, base=0)
    return found


def test_a_suspicion_that_was_not_looked_into_leaves_it_open():
    machine = Machine(Random(2), **QUIET)
    found = one(machine.trials(TRIALS, other=2.0))
    assert (found.verdict, found.by) == ("cannot tell", ())
    assert "Suspected by times" in found.why
    (suspicion,) = found.suspicions
    assert (suspicion.by, suspicion.again_trials, suspicion.again_p) == ("times", 0, None)


def test_a_suspicion_that_more_trials_do_not_confirm_is_told_and_no_leak():
    machine = Machine(Random(3), **QUIET)
    found = one(machine.trials(TRIALS, other=1.2), machine.trials(3 * TRIALS))
    assert (found.verdict, found.by) == ("isolated", ("times",))
    assert "36 more trials do not confirm it" in found.why


def test_however_strong_a_suspicion_is_it_does_not_confirm_itself():
    machine = Machine(Random(7), **QUIET)
    found = one(machine.trials(2 * TRIALS, other=2.0), machine.trials(2 * TRIALS))
    (suspicion,) = found.suspicions
    assert suspicion.p < LEAK_P / 2 < 0.01 < (suspicion.again_p or 0)
    assert found.verdict == "cannot tell"


def test_what_comes_only_a_little_sooner_is_neither_a_leak_nor_isolated():
    machine = Machine(Random(4), **QUIET | {"noise": 0.01, "stumbles": 0.0})
    found = one(machine.trials(TRIALS, other=1.05), machine.trials(2 * TRIALS, other=1.05))
    assert (found.verdict, found.by) == ("cannot tell", ("times",))
    assert "no reused prefix" in found.why


def test_what_was_not_suspected_is_no_leak_however_trials_made_later_lean():
    machine = Machine(Random(5), **QUIET)
    assert one(machine.trials(TRIALS), machine.trials(2 * TRIALS, other=2.0)).verdict == "cannot tell"


def test_reports_of_nothing_are_named_beside_the_times():
    found = one(Machine(Random(6), **QUIET, reports=True).trials(TRIALS))
    assert (found.verdict, found.by) == ("isolated", ("reuse", "times"))
