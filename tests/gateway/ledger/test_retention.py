import time

import pytest
from sqlalchemy.engine import URL

from gateway.ledger import Database, LedgerConfigError, LedgerReader, LedgerWriter, WriterSettings
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.retention import Retention, seconds
from tests.gateway.ledger.rows import row


def fill(database: Database, *arrivals: float) -> None:
    rows = [encoded(row(number, arrival=at)) for number, at in enumerate(arrivals)]
    database.write(Batch("test", 1, rows))


def left(database: Database) -> list[float]:
    return [each.arrival for each in LedgerReader(database).rows()]


@pytest.mark.parametrize(
    ("text", "value"), [("45s", 45), ("90m", 5400), ("12h", 43200), ("30d", 2592000), ("1.5h", 5400)]
)
def test_spans_are_read(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1d2h", "nan"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(LedgerConfigError, match="30d"):
        seconds(text)


def test_old_rows_go_and_the_edge_stays(database: Database) -> None:
    fill(database, 1.0, 100.0, 50.0, 99.9)
    assert sum(database.prune(100.0)) == 3
    assert left(database) == [100.0]


def test_many_rows_go_in_small_steps(database: Database) -> None:
    fill(database, *(float(n) for n in range(12_000)))
    steps = list(database.prune(11_000.0))
    assert len(steps) >= 3
    assert sum(steps) == 11_000


def test_a_tenant_is_forgotten_wholly_and_alone(database: Database) -> None:
    database.write(Batch("t", 1, [encoded(row(n, f"tenant{n % 2}")) for n in range(10)]))
    assert sum(database.forget("tenant1")) == 5
    assert {each.tenant for each in LedgerReader(database).rows()} == {"tenant0"}


class Clocks:
    """Two clocks that a test sets."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000_000.0, 0.0

    def retention(self, keep_s: float) -> Retention:
        return Retention(keep_s, 3600.0, lambda: self.wall, lambda: self.steady)

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_rows_go_when_they_are_old_and_not_more_often_than_it_is_looked(database: Database) -> None:
    clocks = Clocks()
    retention = clocks.retention(7200.0)
    fill(database, 1_000_000.0 - 7201, 1_000_000.0 - 1)
    assert sum(retention.due(database)) == 1
    clocks.passes(3599)
    assert sum(retention.due(database)) == 0
    clocks.passes(3605)
    assert sum(retention.due(database)) == 1


@pytest.mark.parametrize("jump", [10 * 365 * 86_400.0, -86_400.0])
def test_a_clock_that_jumps_deletes_nothing(database: Database, jump: float) -> None:
    clocks = Clocks()
    retention = clocks.retention(7200.0)
    fill(database, 1_000_000.0)
    clocks.passes(4000)
    clocks.wall += jump
    assert sum(retention.due(database)) == 0
    assert left(database) == [1_000_000.0]


def test_a_writer_prunes_by_itself_and_counts_it(database: Database) -> None:
    now = time.time()
    fill(database, now - 90_000, now)
    writer = LedgerWriter(database, WriterSettings(interval_s=0.01), Retention(86_400.0)).start()
    while not writer.counts().pruned:
        time.sleep(0.01)
    writer.close()
    assert left(database) == [now]


def test_a_file_gives_back_what_was_deleted(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("l") / "ledger.db"
    database = Database(URL.create("sqlite", database=str(path)))
    fill(database, *(float(n) for n in range(20_000)))
    database.close()
    before = path.stat().st_size
    list(database.prune(1e9))
    database.close()
    assert path.stat().st_size < before / 4
