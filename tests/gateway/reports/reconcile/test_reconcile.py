"""Sums of requests meet the engine's own counters over exactly the spans that scrapes cover."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy.engine import URL

from engine_adapters.errors import EngineNotReadyError
from gateway.ledger import Database, LedgerRow
from gateway.ledger.scrapes import Scrape, ScrapeStore
from gateway.reports.audit import AuditReport, audit
from gateway.reports.reconcile.counted import Counted, counted
from gateway.reports.reconcile.scraper import EngineScraper
from gateway.reports.reconcile.segments import segments_of
from tests.gateway.reports.audit.test_audit import NOW, ledger

ROW = LedgerRow(
    "1", "t", "m", "chat", engine="e", arrival=9_000.0, end=9_001.0, status=200, prompt=1000, reused=800,
    reuse_status="reported",
)  # fmt: skip
ROWS = [
    replace(ROW, arrival=9_000.0 + i, end=9_000.5 + i) for i in range(100)
]  # 100,000 tokens, 80,000 reused


def scrapes(*counts: tuple[float, int | None, int | None, int | None]) -> list[Scrape]:
    return [Scrape("e", *each) for each in counts]


def audited(rows: Sequence[LedgerRow], given_scrapes: Sequence[Scrape]) -> AuditReport:
    with ledger(rows) as reader:
        return audit(reader, until=NOW, scrapes=given_scrapes)


def rules(report: AuditReport) -> list[str]:
    return [finding.rule for finding in report.findings]


@pytest.mark.parametrize(
    ("counted_prompt", "counted_reused", "wanted"),
    [
        (100_000, 80_000, []),
        (100_700, 80_500, []),  # within tolerance
        (150_000, 80_000, ["engine-counted-more"]),
        (50_000, 40_000, ["engine-counted-less"]),
        (100_000, 20_000, ["reported-too-much"]),
        (100_000, 99_000, ["reported-too-little"]),
        (None, 80_000, []),
        (None, None, []),
    ],
)
def test_a_difference_beyond_tolerance_is_a_finding(
    counted_prompt: int | None, counted_reused: int | None, wanted: list[str]
):
    begin = (8_990.0, None if counted_prompt is None else 5, None if counted_reused is None else 7, None)
    last = (
        9_200.0,
        None if counted_prompt is None else counted_prompt + 5,
        None if counted_reused is None else counted_reused + 7,
        None,
    )
    report = audited(ROWS, scrapes(begin, last))
    assert rules(report) == wanted
    found = report.reconciled[0]
    assert (found.prompt, found.reused, found.requests) == (100_000, 80_000, 100)
    assert found.counted_prompt == counted_prompt
    assert all(finding.cause for finding in report.findings)


@pytest.mark.parametrize(
    ("recomputed", "wanted"), [(20_000, []), (90_000, ["computed-more"]), (3_000, ["computed-less"])]
)
def test_an_engine_that_counts_only_what_it_computes_is_compared_by_that(recomputed: int, wanted: list[str]):
    assert rules(audited(ROWS, scrapes((8_990, None, None, 0), (9_200, None, None, recomputed)))) == wanted


def test_requests_that_did_not_report_may_have_reused_what_the_engine_counted_more():
    silent = [replace(row, reused=None, reuse_status="not_reported") for row in ROWS]
    counted_more = scrapes((8_990, 0, 0, None), (9_200, 100_000, 90_000, None))
    assert rules(audited(silent, counted_more)) == ["not-reported"]
    assert audited(silent, counted_more).reconciled[0].silent_prompt == 100_000


def test_only_requests_of_the_engine_that_ended_between_scrapes_count():
    others = [replace(ROW, engine="f"), replace(ROW, engine=None), replace(ROW, arrival=9_500.0, end=9_501.0)]
    report = audited([*ROWS, *others], scrapes((8_990, 0, 0, None), (9_200, 100_000, 80_000, None)))
    assert report.reconciled[0].requests == 100
    assert rules(report) == []


def test_a_restart_leaves_out_the_span_around_it():
    its = scrapes((8_990, 500_000, 0, None), (9_049.9, 550_000, 40_000, None),
                  (9_059.9, 0, 0, None), (9_200, 40_000, 32_000, None))  # fmt: skip
    report = audited(ROWS, its)
    found = report.reconciled[0]
    assert found.restarts == 1
    assert found.requests == 90
    assert rules(report) == []


counts = st.lists(st.integers(0, 50), min_size=1, max_size=12)


@given(steps=counts, restarts=st.sets(st.integers(0, 11)))
def test_segments_hold_all_that_was_counted_but_for_what_a_restart_lost(steps: list[int], restarts: set[int]):
    total, taken, counted_all = 0, [], 0
    for place, step in enumerate(steps):
        if place in restarts and total > 0:
            total = 0  # and it has counted nothing yet
        elif place:
            total += step
            counted_all += step
        taken.append(Scrape("e", float(place), total, None, None))
    segments = segments_of(taken)["e"] if taken else []
    assert sum(segment.prompt or 0 for segment in segments) == counted_all
    assert all(segment.begin < segment.end for segment in segments)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.builds(Scrape, st.sampled_from("ef"), st.floats(0, 1e9), *[st.none() | st.integers(0, 2**60)] * 3)
    )
)
def test_what_is_kept_comes_back(its: list[Scrape]):
    with ledger([]) as reader:
        store = ScrapeStore(reader._database)
        store.put(its)
        assert sorted(store.between(None, 2e9), key=repr) == sorted(its, key=repr)
        assert store.between(5e8, 2e9) == [each for each in store.between(None, 2e9) if each.at >= 5e8]


def test_old_scrapes_go_with_old_rows():
    with ledger([]) as reader:
        store = ScrapeStore(reader._database)
        store.put(scrapes((1.0, 1, 1, 0), (9.0, 2, 1, 1)))
        list(reader._database.prune(5.0))
        assert store.between(None, 10.0) == scrapes((9.0, 2, 1, 1))


@pytest.mark.parametrize(
    ("counters", "wanted"),
    [
        ({}, Counted()),
        ({"process_cpu_seconds_total": 1.0}, Counted()),
        ({"prompt_tokens": 9.0, "reused_tokens": 4.0, "recomputed_tokens": 5.0}, Counted(9, 4, 5)),
        ({"llamacpp:prompt_tokens_total": 5.0}, Counted(None, None, 5)),
        ({"llamacpp:prompt_tokens_total": 5.0, "llamacpp:prompt_tokens_cached_total": 4.0}, Counted(9, 4, 5)),
        ({"vllm:prefix_cache_queries_total": 9.0, "vllm:prefix_cache_hits_total": 4.0}, Counted(9, 4, 5)),
        (
            {"sglang:prompt_tokens_total": 9.0, 'sglang:cached_tokens_total{cache_source="device"}': 4.0},
            Counted(9, 4, 5),
        ),
    ],
)
def test_every_engine_s_names_are_known(counters: Mapping[str, float], wanted: Counted):
    assert counted(counters) == wanted


async def test_the_scraper_keeps_what_engines_count_and_goes_on_where_one_is_away(tmp_path: Path):
    database = Database(URL.create("sqlite", database=str(tmp_path / "ledger.db")))
    database.prepare()
    store = ScrapeStore(database)

    async def well() -> Mapping[str, float]:
        return {"vllm:prefix_cache_queries_total": 9.0, "vllm:prefix_cache_hits_total": 4.0}

    async def away() -> Mapping[str, float]:
        raise EngineNotReadyError("away")

    async def silent() -> Mapping[str, float]:
        return {}

    scraper = EngineScraper(store, lambda: {"a": well, "b": away, "c": silent}, clock=lambda: 7.0)
    await scraper.once()
    assert store.between(None, 8.0) == [Scrape("a", 7.0, 9, 4, 5)]
    store.close()


def test_replicas_are_compared_one_by_one_and_add_up_to_their_engine() -> None:
    rows = [replace(row, replica=f"e/{number % 2}") for number, row in enumerate(ROWS)]
    counted_ = [
        Scrape(f"e/{number}", at, prompt, reused, None)
        for number, (prompt, reused) in enumerate(((50_000, 40_000), (20_000, 40_000)))
        for at, prompt, reused in ((8_990.0, 0, 0), (9_200.0, prompt, reused))
    ]
    report = audited([*rows, replace(ROW, replica=None)], counted_)
    assert [found.engine for found in report.reconciled] == ["e/0", "e/1"]
    assert sum(found.prompt for found in report.reconciled) == 100_000  # that of no replica is not theirs
    assert [(finding.rule, finding.engine) for finding in report.findings] == [("engine-counted-less", "e/1")]
    with ledger([*rows, replace(ROW, replica=None)]) as reader:
        by_replica = audit(reader, by=["engine", "replica"], until=NOW)
        (whole,) = audit(reader, by=["engine"], until=NOW).groups
    assert {group.key["replica"] for group in by_replica.groups} == {"e/0", "e/1", None}
    assert sum(group.requests for group in by_replica.groups) == whole.requests == 101
