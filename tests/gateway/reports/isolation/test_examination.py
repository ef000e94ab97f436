"""Leaks are found by what is reported and by time alone, on every tier; without power nothing is called isolated."""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from engine_adapters.base import ReuseReport, Tier
from gateway.reports.doctor.prober import Told
from gateway.reports.isolation import Examination, Isolation, Scale, Sides

WORDS, TRIALS = 200, 16
TIERS: tuple[Tier, ...] = ("device", "host", "disk")
COSTS: dict[Tier | None, float] = {"device": 0.1, "host": 0.3, "disk": 0.5, None: 1.0}  # of a cold answer


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
    kept: list[tuple[str, str]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    random: Random = field(default_factory=lambda: Random(1))

    def ask(self, tenant: str, text: str) -> Told:
        found = next((key for key in reversed(self.kept) if self._may(tenant, key) and key[1] == text), None)
        tier = None if found is None else self._tier(found)
        prompt = len(text.split()) + self.template
        reused = prompt - 1 if tier else self.template if tenant in self.seen else 0
        if found is not None and (found[0] == tenant or tier):
            self.kept.remove(found)
        self.kept.append((tenant, text))
        self.seen.add(tenant)
        cost = COSTS[tier] if self.hits_help else 1.0
        seconds = cost * prompt * 1e-3 * self.random.lognormvariate(0, self.noise)
        by_tier = {tier or "device": reused} if self.tells_tiers and self.reports else None
        status: Any = "reported" if self.reports else "not_reported"
        return Told(
            ReuseReport(prompt, reused if self.reports else None, by_tier, "test", status), 1, seconds
        )

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


def examined(cache: Cache, *, mate: str | None = None, **scale: Any) -> Isolation:
    sides: Any = Sides(Asker(cache, "a"), Asker(cache, "b"), mate and Asker(cache, mate))  # type: ignore[arg-type]
    bounds = Scale(**{"words": WORDS, "trials": TRIALS} | scale)
    found = asyncio.run(Examination("http://x", sides, bounds, seed=3, say=lambda _: None).examine())
    assert found.requests <= bounds.requests
    return found


def verdicts(found: Isolation) -> dict[str, str]:
    return {each.tier: each.verdict for each in found.findings}


def test_tenants_that_are_apart_are_isolated_on_every_tier():
    found = examined(Cache())
    assert verdicts(found) == {"device": "isolated", "host": "isolated", "disk": "isolated"}
    assert found.verdict == "isolated"
    assert "lower tiers" in found.not_reached


@pytest.mark.parametrize("tells_tiers", [True, False])
def test_a_shared_cache_leaks_by_what_is_reported(tells_tiers: bool):
    found = examined(Cache(shared=True, tells_tiers=tells_tiers))
    assert set(verdicts(found).values()) == {"leaks"}
    assert found.verdict == "leaks"
    assert found.findings[0].other_reused == WORDS + 4


def test_a_shared_cache_that_reports_nothing_leaks_by_time_alone():
    found = examined(Cache(shared=True, reports=False))
    (finding,) = found.findings
    assert (found.verdict, finding.other_reused) == ("leaks", None)
    assert finding.other_gain.p < 0.001
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


def test_tenants_that_are_apart_are_rarely_called_leaking():
    """By chance at most one in a thousand looks, of which there are two."""
    wrong = [
        examined(Cache(reports=False, random=Random(seed)), trials=12).verdict == "leaks"
        for seed in range(60)
    ]
    assert sum(wrong) <= 1
