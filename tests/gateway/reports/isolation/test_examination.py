"""Leaks are found by what is reported and by time alone, on every tier; without power nothing is called isolated."""

import asyncio
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from typing import Any

import pytest

from engine_adapters.base import ReuseReport, Tier
from gateway.reports.doctor.prober import Told
from gateway.reports.isolation import Examination, Isolation, Scale, Sides
from gateway.reports.isolation.judging import FEWEST_AGAIN

WORDS, TRIALS = 200, 16
TIERS: tuple[Tier, ...] = ("device", "host", "disk")
COSTS: dict[Tier | None, float] = {"device": 0.1, "host": 0.3, "disk": 0.5, None: 1.0}  # of a cold answer


def common_beginning(one: str, other: str) -> int:
    same = (here == there for here, there in zip(one, other, strict=False))
    return sum(takewhile(bool, same))


@dataclass
class Cache:
    """What is cached, newest last: each tier holds so many prompts, and what is older is further down."""

    shared: bool = False  # between the tenants
    reports: bool = True
    tells_tiers: bool = True
    only_leaks_on: Tier | None = None  # tenants are apart but there
    template: int = 5  # tokens that all prompts of a tenant begin with
    room: int = 60  # prompts, on each tier
    noise: float = 0.1
    hits_help: bool = True  # whether hits are any faster
    hides: bool = False  # what tenants reuse of each other's is not told
    bytes_in_blocks: bool = False  # a byte is a token, and only whole blocks of 16 are reused, by their bytes
    first_block_leaks: bool = False
    late: int = 0  # hits below the device that are not brought up, at first
    kept: list[tuple[str, str]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    random: Random = field(default_factory=lambda: Random(1))

    def ask(self, tenant: str, text: str) -> Told:
        may = [key for key in reversed(self.kept) if key[1] == text and self._may(tenant, key)]
        found = next((key for key in may if key[0] == tenant), may[0] if may else None)
        tier = None if found is None else self._tier(found)
        if tier in ("host", "disk") and self.late:
            self.late -= 1
            tier = None
        prompt = (len(text) if self.bytes_in_blocks else len(text.split())) + self.template
        reused = prompt - 1 if tier else self.template if tenant in self.seen else 0
        if self.bytes_in_blocks:
            reused = self._in_blocks(tenant, text, prompt, hit=tier is not None)
        own = found is not None and found[0] == tenant
        if found is not None and (own or (tier and not self.hides)):
            self.kept.remove(found)
        self.kept.append((tenant, text))
        self.seen.add(tenant)
        cost = COSTS[tier] if self.hits_help else 1.0
        seconds = cost * prompt * 1e-3 * self.random.lognormvariate(0, self.noise)
        if self.hides and not own:
            reused, tier = self.template, None
        by_tier = {tier or "device": reused} if self.tells_tiers and self.reports else None
        status: Any = "reported" if self.reports else "not_reported"
        return Told(
            ReuseReport(prompt, reused if self.reports else None, by_tier, "test", status), 1, seconds
        )

    def _in_blocks(self, tenant: str, text: str, prompt: int, *, hit: bool) -> int:
        """The last four tokens of the template stand behind the text."""
        if hit:
            return (prompt - 1) // 16 * 16
        others = [known for whose, known in self.kept if whose == tenant]
        common = max((common_beginning(text, known) for known in others), default=0)
        leaked = 16 if self.first_block_leaks and any(known == text for _, known in self.kept) else 0
        return max((self.template - 4 + common) // 16 * 16, leaked)

    def _may(self, tenant: str, key: tuple[str, str]) -> bool:
        return key[0] == tenant or self.shared or self._tier(key) == self.only_leaks_on

    def _tier(self, key: tuple[str, str]) -> Tier | None:
        depth = (len(self.kept) - 1 - self.kept.index(key)) // self.room
        return TIERS[depth] if depth < len(TIERS) else None


class Asker:
    """One tenant."""

    model = "m"

    def __init__(self, cache: Cache, tenant: str) -> None:
        self._cache, self._tenant = cache, tenant
        self.requests = self.prompt_tokens = 0

    async def text(self, text: str, *, stream: bool = False, salt: str | None = None) -> Told:
        assert stream, "times of whole answers say nothing of the first token"
        told = self._cache.ask(self._tenant, text)
        self.requests += 1
        self.prompt_tokens += told.prompt or 0
        return told


def examined(cache: Cache, *, mate: str | None = None, seed: int = 3, **scale: Any) -> Isolation:
    sides: Any = Sides(Asker(cache, "a"), Asker(cache, "b"), mate and Asker(cache, mate))  # type: ignore[arg-type]
    bounds = Scale(**{"words": WORDS, "trials": TRIALS} | scale)
    found = asyncio.run(Examination("http://x", sides, bounds, seed=seed, say=lambda _: None).examine())
    again = any(suspicion.again_trials for each in found.findings for suspicion in each.suspicions)
    assert found.requests <= bounds.requests + (bounds.requests_again if again else 0)
    return found


def verdicts(found: Isolation) -> dict[str, str]:
    return {each.tier: each.verdict for each in found.findings}


def test_tenants_that_are_apart_are_isolated_on_every_tier():
    found = examined(Cache())
    assert verdicts(found) == {"device": "isolated", "host": "isolated", "disk": "isolated"}
    assert found.verdict == "isolated"
    assert "lower tiers" in found.not_reached


def test_an_engine_that_brings_nothing_up_for_one_round_is_asked_once_more():
    assert "host" in verdicts(examined(Cache(late=TRIALS + 1)))
    found = examined(Cache(late=10_000))
    assert (verdicts(found), found.verdict) == ({"device": "isolated"}, "isolated")
    assert "not even the owner gets anything back" in found.not_reached


@pytest.mark.parametrize("tells_tiers", [True, False])
def test_a_shared_cache_leaks_by_what_is_reported(tells_tiers: bool):
    found = examined(Cache(shared=True, tells_tiers=tells_tiers))
    assert set(verdicts(found).values()) == {"leaks"}
    assert (found.verdict, found.by) == ("leaks", ("reuse",))
    assert found.findings[0].other_reused == WORDS + 4
    assert found.as_json()["by"] == ("reuse",)
    # It is certain, so nothing is looked at again.
    assert {one.again_trials for each in found.findings for one in each.suspicions} <= {0}


def test_a_shared_cache_that_reports_nothing_leaks_by_time_alone():
    found = examined(Cache(shared=True, reports=False))
    (finding,) = found.findings
    assert (found.verdict, found.by, finding.other_reused) == ("leaks", ("times",), None)
    (suspicion,) = finding.suspicions
    assert (suspicion.by, suspicion.again_trials) == ("times", 2 * TRIALS)
    assert suspicion.p < 0.001
    assert suspicion.again_p is not None
    assert suspicion.again_p < 0.001
    assert finding.other_gain.times > 5


def test_without_reports_tenants_that_are_apart_are_isolated_by_time():
    (finding,) = examined(Cache(reports=False)).findings
    assert (finding.tier, finding.verdict) == ("all", "isolated")
    assert finding.own_gain.p < 0.001


@pytest.mark.parametrize("tier", ["host", "disk"])
def test_a_leak_on_one_tier_alone_is_found(tier: Tier):
    found = examined(Cache(only_leaks_on=tier))
    assert verdicts(found)["device"] == "isolated"
    assert verdicts(found)[tier] == "leaks"
    assert found.verdict == "leaks"


@pytest.mark.parametrize("tier", ["device", "host", "disk"])
def test_a_leak_on_one_tier_that_is_not_told_is_found_by_times(tier: Tier):
    found = examined(Cache(only_leaks_on=tier, hides=True))
    by = {each.tier: each.by for each in found.findings if each.verdict == "leaks"}
    assert by == {tier: ("times",)}
    again = {each.tier: each.suspicions[0].again_trials for each in found.findings if each.suspicions}
    assert again.keys() == {tier}
    assert again[tier] >= FEWEST_AGAIN


def test_what_prompts_of_one_tenant_begin_with_in_common_by_chance_is_no_leak():
    """Two letters in common are a block more here, with the sixteen tokens of the template in front."""
    found = [
        examined(Cache(bytes_in_blocks=True, template=18, room=300), seed=seed, fill_tokens=0)
        for seed in range(8)
    ]
    assert {each.findings[0].other_reused for each in found} == {0, 16}
    assert "leaks" not in {each.verdict for each in found}


def test_a_leak_of_no_more_than_chance_could_bring_is_found_by_how_often_it_is():
    found = examined(
        Cache(bytes_in_blocks=True, template=18, room=300, first_block_leaks=True), fill_tokens=0
    )
    assert (found.verdict, found.by) == ("leaks", ("reuse",))
    assert "more of the owner's prefixes than of fresh ones" in found.findings[0].why


@pytest.mark.parametrize("cache", [Cache(hits_help=False), Cache(noise=12.0)], ids=["no gain", "noise"])
@pytest.mark.parametrize("reports", [True, False])
def test_where_the_owner_s_own_hits_cannot_be_seen_nothing_is_called_isolated(cache: Cache, reports: bool):
    cache.reports = reports
    found = examined(cache, fill_tokens=0)
    assert found.verdict == "cannot tell"
    assert found.findings[0].trials == 2 * TRIALS  # it tried again


def test_what_all_prompts_of_a_tenant_begin_with_is_no_leak():
    assert examined(Cache(template=150), fill_tokens=0).findings[0].verdict == "isolated"


def test_a_tier_that_was_asked_for_and_not_reached_leaves_it_open():
    found = examined(Cache(), tiers=("device", "store"))
    assert (found.verdict, found.missing) == ("cannot tell", ("store",))
    assert examined(Cache(), tiers=("device",)).verdict == "isolated"


def test_what_may_be_spent_is_kept_to():
    found = examined(Cache(room=10_000), fill_tokens=2000)
    assert "2,0" in found.not_reached
    assert verdicts(found) == {"device": "isolated"}
    assert found.verdict == "isolated"


@pytest.mark.parametrize(("mate", "shares"), [("a", True), ("c", False)])
def test_a_tenant_of_the_group_shares_or_does_not(mate: str, shares: bool):
    sharing = examined(Cache(), mate=mate, fill_tokens=0).mate
    assert sharing is not None
    assert sharing.shares is shares


def test_tenants_that_are_apart_are_not_called_leaking_also_where_they_were_suspected():
    found = [examined(Cache(reports=False, random=Random(seed)), trials=12, seed=seed) for seed in range(150)]
    assert "leaks" not in {each.verdict for each in found}
    assert any(each.findings[0].suspicions for each in found)


def test_an_order_that_favours_neither_is_what_keeps_a_slowing_machine_from_looking_like_a_leak():
    """Each answer takes two in a hundred longer than the one before."""

    class Slowing(Random):
        pace = 1e-6

        def lognormvariate(self, mu: float = 0.0, sigma: float = 1.0) -> float:
            self.pace *= 1.02
            return self.pace

    found = [examined(Cache(reports=False, random=Slowing()), seed=seed) for seed in range(10)]
    assert "leaks" not in {each.verdict for each in found}
    assert not any(each.findings[0].suspicions for each in found)
