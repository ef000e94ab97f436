"""Every figure of the audit equals what the words of the design say, whatever is in the ledger."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from gateway.ledger import Database, Divergence, LedgerReader, LedgerRow
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.reports.audit import AuditReport, GroupFigures, audit
from gateway.reports.errors import ReportError
from gateway.reports.rows.classes import CLASSES
from tests.gateway.reports.audit import naive

NOW = 10_000.0
_counts = st.none() | st.integers(0, 400) | st.sampled_from([2**30, 2**31 - 1])
_TENANTS = ["a", "b", "", "ünïcödé 租户", "👩‍👩‍👧"]
_seconds = st.none() | st.integers(0, 4_000).map(lambda ms: ms / 1000)


@st.composite
def rows(draw: st.DrawFn) -> LedgerRow:
    arrival = float(draw(st.integers(5_000, 9_000)))
    first, more = draw(_seconds), draw(_seconds)
    cause = draw(st.sampled_from([None, "clock", "tool order"]))
    return LedgerRow(
        "id",
        draw(st.sampled_from(_TENANTS)),
        draw(st.sampled_from(["m", "n"])),
        draw(st.sampled_from(["chat", "completions"])),
        engine=draw(st.sampled_from([None, "e", "f"])),
        arrival=arrival,
        first_token=None if first is None else arrival + first,
        end=None if first is None or more is None else arrival + first + more,
        stream=draw(st.booleans()),
        status=draw(st.sampled_from([200, 200, 200, 200, 0, 499, 503])),
        prompt=draw(_counts),
        reused=draw(_counts),
        by_tier=draw(
            st.dictionaries(st.sampled_from(["device", "host", "disk", "store"]), st.integers(0, 99))
        ),
        completion=draw(_counts),
        reuse_status=draw(
            st.sampled_from(["reported", "reported", "reported", "not_reported", "inconsistent"])
        ),
        predicted=draw(_counts),
        block_size=draw(st.sampled_from([None, 1, 16, 64])),
        gap_cause=draw(st.sampled_from([None, "evicted", "salt"])),
        divergence=None if cause is None else Divergence("messages[0]", 1, cause, "00"),
    )


@contextmanager
def ledger(given_rows: Sequence[LedgerRow]) -> Iterator[LedgerReader]:
    with TemporaryDirectory() as folder:
        database = Database(make_url(f"sqlite:///{Path(folder) / 'ledger.db'}"))
        database.prepare()
        if given_rows:
            database.write(Batch("test", 1, [encoded(row) for row in given_rows]))
        yield LedgerReader(database)
        database.close()


def audited(
    given_rows: Sequence[LedgerRow], by: Sequence[str] = (), since: float | None = None
) -> AuditReport:
    with ledger(given_rows) as reader:
        return audit(reader, by, since, until=NOW)


def assert_equal(found: GroupFigures, members: list[LedgerRow], everything: list[LedgerRow]) -> None:
    wanted = naive.figures(members, naive.rates(everything))
    for name in (
        "requests",
        "reused",
        "recomputed",
        "reuse_rate",
        "tiers",
        "untold_tier",
        "estimated_tokens",
    ):
        assert getattr(found, name) == wanted[name], name
    assert (found.prefill_saved_s or 0.0) == pytest.approx(wanted["saved"], rel=1e-4, abs=1e-6)
    for name in CLASSES:
        its = [row for row in members if naive.class_of(row) == name]
        figures = found.classes[name]
        assert figures.requests == wanted["classes"][name]
        assert figures.prompt == sum(row.prompt or 0 for row in its)
        assert figures.completion == sum(row.completion or 0 for row in its)
        for got, values in ((figures.ttft, map(naive.ttft, its)), (figures.tpot, map(naive.tpot, its))):
            expected = naive.percentiles(list(values))
            said = None if got is None else (got.count, got.p50, got.p90, got.p99)
            assert said == (None if expected is None else pytest.approx(expected, rel=1e-3, abs=1e-3))


@settings(max_examples=40, deadline=None)
@given(
    given_rows=st.lists(rows(), max_size=40),
    by=st.lists(st.sampled_from(naive.KEYS), unique=True, max_size=4),
    since=st.none() | st.integers(4_000, 9_500),
)
def test_every_figure_equals_the_naive_one(given_rows: list[LedgerRow], by: list[str], since: int | None):
    report = audited(given_rows, by, since)
    inside = [row for row in given_rows if since is None or row.arrival >= since]
    assert_equal(report.total, inside, inside)
    groups = {tuple(getattr(row, name) for name in by) for row in inside} if by else set()
    assert {tuple(group.key.values()) for group in report.groups} == groups
    for group in report.groups:
        members = [row for row in inside if all(getattr(row, k) == v for k, v in group.key.items())]
        assert_equal(group, members, inside)
    assert {(c.kind, c.cause): (c.tokens, c.requests) for c in report.causes} == naive.causes(inside)
    assert sum(each.reused for each in report.bins) == report.total.reused
    assert sum(each.recomputed for each in report.bins) == report.total.recomputed
    assert len(report.bins) <= 120


@settings(max_examples=10, deadline=None)
@given(given_rows=st.lists(rows(), min_size=1, max_size=30))
def test_chunks_change_nothing(given_rows: list[LedgerRow]):
    with ledger(given_rows) as reader:
        whole = audit(reader, ["tenant", "engine"], until=NOW)
        in_parts = audit(_SmallChunks(reader), ["tenant", "engine"], until=NOW)
    assert _exact(whole) == _exact(in_parts)
    for one, other in zip((whole.total, *whole.groups), (in_parts.total, *in_parts.groups), strict=True):
        assert one.prefill_saved_s == pytest.approx(other.prefill_saved_s)


def _exact(report: AuditReport) -> AuditReport:
    """Without the one figure that is a sum of fractions."""
    total, *groups = (replace(each, prefill_saved_s=None) for each in (report.total, *report.groups))
    return replace(report, total=total, groups=tuple(groups))


class _SmallChunks(LedgerReader):
    """The same reader, three rows at a time."""

    def __init__(self, reader: LedgerReader) -> None:
        super().__init__(reader._database)

    def columns(self, names, window, *_):  # type: ignore[no-untyped-def]
        return super().columns(names, window, chunk=3)


def test_rates_are_over_the_window_that_was_asked_for():
    row = LedgerRow(
        "1", "t", "m", "chat", arrival=9_990.0, status=200, prompt=100, reused=60, reuse_status="reported"
    )
    report = audited([row], since=9_900.0)
    assert report.seconds == 100
    assert report.total.reused_per_s == 0.6
    assert report.total.recomputed_per_s == 0.4


def test_unknown_columns_are_refused():
    with pytest.raises(ReportError, match="tenant"):
        audited([], by=["colour"])


def test_an_empty_ledger_says_nothing_and_no_zero():
    report = audited([])
    assert report.total.requests == 0
    assert report.total.reuse_rate is None
    assert report.total.prefill_saved_s is None
    assert report.groups == report.causes == report.findings == report.bins == ()
