"""The audit says the same of the same rows in SQLite and in PostgreSQL, and what the naive way says."""

from pathlib import Path
from random import Random

import pytest
from sqlalchemy.engine import URL

from gateway.ledger import Database, Divergence, LedgerReader, LedgerRow
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.place import ledger_url
from gateway.reports.audit import AuditReport, audit
from tests.gateway.ledger.postgres import Postgres
from tests.gateway.reports.audit.test_audit import NOW, assert_equal

_BY = ["tenant", "model", "engine", "route"]


def some_row(random: Random) -> LedgerRow:
    count = random.choice([None, 0, 1, 2**31 - 1, random.randrange(4_000)])
    arrival = random.randrange(5_000, 9_000) + random.random()
    first = random.choice([None, arrival + random.random()])
    cause = random.choice([None, "clock", "outil à l'envers"])
    return LedgerRow(
        "id", random.choice(["a", "ünïcödé 租户", "👩‍👩‍👧", ""]), random.choice("mn"),
        random.choice(["chat", "messages"]),
        engine=random.choice([None, "e", "f"]), replica=random.choice([None, "e/0"]), arrival=arrival,
        first_token=first, end=None if first is None else first + random.random(), stream=random.random() < 0.7,
        status=random.choice([200, 200, 200, 0, 503]), prompt=count,
        reused=random.choice([None, count, 0, 16, count]), by_tier=random.choice([{}, {"device": 16}, {"disk": 3}]),
        completion=random.choice([None, 0, 1, 20]), predicted=random.choice([None, 64, count]),
        reuse_status=random.choice(["reported", "reported", "not_reported", "inconsistent"]),
        block_size=random.choice([None, 16]), gap_cause=random.choice([None, "evicted"]),
        divergence=None if cause is None else Divergence("messages[0]", 1, cause, "00"),
    )  # fmt: skip


def audited(url: URL, rows: list[LedgerRow], since: float | None) -> AuditReport:
    database = Database(url)
    for number, first in enumerate(range(0, len(rows), 250), 1):
        database.write(Batch("w", number, [encoded(each) for each in rows[first : first + 250]]))
    report = audit(LedgerReader(database), _BY, since, until=NOW)
    database.close()
    return report


@pytest.mark.parametrize("since", [None, 7_000.0])
def test_both_databases_say_what_the_naive_way_says(tmp_path: Path, since: float | None) -> None:
    random = Random(11)
    rows = [some_row(random) for _ in range(1_700)]
    inside = [each for each in rows if since is None or each.arrival >= since]
    with Postgres.started() as server:
        url = ledger_url(server.new_database(), {})
        assert url is not None
        served = audited(url, rows, since)
    report = audited(URL.create("sqlite", database=str(tmp_path / "ledger.db")), rows, since)
    assert served == report
    assert_equal(report.total, inside, inside)
    for group in report.groups:
        assert_equal(
            group, [row for row in inside if all(getattr(row, k) == v for k, v in group.key.items())], inside
        )
    assert sum(group.requests for group in report.groups) == len(inside)
