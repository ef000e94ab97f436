"""The writer over real databases."""

import random
import threading
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError

from gateway.ledger import Database, LedgerReader, LedgerWriter, WriterSettings
from gateway.ledger.database import Batch
from tests.gateway.ledger.rows import row

_FAST = WriterSettings(batch_rows=10, interval_s=0.01, first_retry_s=0.001, last_retry_s=0.01)


class Flaky(Database):
    """A database that fails before or behind its commit, as `fails` says, one letter a try."""

    def __init__(self, url: URL, fails: Iterator[str]) -> None:
        super().__init__(url)
        self.fails = fails
        self.closed = 0

    def write(self, batch: Batch) -> int:
        fate = next(self.fails, "")
        if fate == "unforeseen":
            raise RuntimeError(fate)
        if fate == "before":
            raise OperationalError("INSERT", (), Exception("database is locked"))
        forgotten = super().write(batch)
        if fate == "behind":
            raise OperationalError("COMMIT", (), Exception("connection lost"))
        return forgotten


def ids(database: Database) -> list[str]:
    return [each.id for each in LedgerReader(database).rows()]


def test_what_was_put_is_there_after_close_in_its_order(database: Database) -> None:
    writer = LedgerWriter(database).start()
    for number in range(1234):
        writer.put(row(number))
    assert writer.close() == 0
    assert ids(database) == [str(number) for number in range(1234)]
    assert writer.counts().written == 1234


def test_a_row_is_readable_within_the_interval_without_close(database: Database) -> None:
    writer = LedgerWriter(database, _FAST).start()
    writer.put(row(1))
    while writer.counts().written < 1:
        threading.Event().wait(0.01)
    assert ids(database) == ["1"]
    writer.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fails=st.lists(st.sampled_from(["before", "behind", "works"]), max_size=12), count=st.integers(1, 60))
def test_each_row_is_in_once_and_in_order_however_tries_fail(
    tmp_path_factory: pytest.TempPathFactory, fails: list[str], count: int
) -> None:
    url = sqlite_url(tmp_path_factory)
    database = Flaky(url, iter(fails))
    writer = LedgerWriter(database, _FAST).start()
    for number in range(count):
        writer.put(row(number))
    assert writer.close() == 0
    assert ids(database) == [str(number) for number in range(count)]
    database.close()


def sqlite_url(factory: pytest.TempPathFactory) -> URL:
    return URL.create("sqlite", database=str(factory.mktemp("ledger") / "ledger.db"))


def test_a_commit_whose_answer_was_lost_is_not_repeated(url: URL) -> None:
    database = Flaky(url, iter(["behind", "behind", "works"]))
    writer = LedgerWriter(database, _FAST).start()
    writer.put(row(7))
    assert writer.close() == 0
    assert ids(database) == ["7"]
    assert writer.counts().retries == 2
    database.close()


def test_what_does_not_fit_is_dropped_and_counted_and_order_stays(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    gate = threading.Event()

    def until_open() -> Iterator[str]:
        while not gate.is_set():
            yield "before"

    database = Flaky(sqlite_url(tmp_path_factory), until_open())
    writer = LedgerWriter(database, replace(_FAST, queue_rows=50)).start()
    for number in range(500):
        writer.put(row(number))
    counts = writer.counts()
    assert counts.dropped >= 500 - 50 - _FAST.batch_rows
    assert counts.waiting <= 50 + _FAST.batch_rows
    while writer.counts().failing is None:
        threading.Event().wait(0.01)
    assert writer.counts().failing == "Exception"
    gate.set()
    assert writer.close() == 0
    kept = ids(database)
    assert len(kept) == 500 - writer.counts().dropped
    assert kept == sorted(kept, key=int)
    assert writer.counts().failing is None
    database.close()


def test_close_gives_up_at_its_deadline_and_counts_what_was_lost(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    def never() -> Iterator[str]:
        while True:
            yield "before"

    database = Flaky(sqlite_url(tmp_path_factory), never())
    writer = LedgerWriter(database, _FAST).start()
    for number in range(35):
        writer.put(row(number))
    assert writer.close(wait_s=0.2) == 35
    assert writer.counts().dropped == 35
    assert writer.counts().waiting == 0


class Endless(Database):
    """While a batch is written, new rows come."""

    writer: LedgerWriter
    number = 1000

    def write(self, batch: Batch) -> int:
        self.number += 1
        self.writer.put(row(self.number))
        return super().write(batch)


def test_it_settles_though_rows_never_cease_to_come(url: URL) -> None:
    database = Endless(url)
    writer = database.writer = LedgerWriter(database, _FAST).start()
    for number in range(25):
        writer.put(row(number))
    assert writer.settle(30)
    assert set(ids(database)) >= {str(number) for number in range(25)}
    database.writer = LedgerWriter(database)  # which is not started: nothing more comes
    writer.close()


def test_rows_put_after_close_are_dropped_and_counted(database: Database) -> None:
    writer = LedgerWriter(database, _FAST).start()
    writer.close()
    writer.put(row(1))
    assert writer.counts().dropped == 1


def test_a_row_that_was_made_wrong_costs_no_other_row(database: Database) -> None:
    writer = LedgerWriter(database, _FAST).start()
    for number in range(30):
        wrong = msgspec.structs.replace(row(number), tenant=17) if number == 13 else row(number)  # type: ignore[arg-type]
        none = msgspec.structs.replace(row(number), tenant=None) if number == 21 else wrong  # type: ignore[arg-type]
        writer.put(none)
    assert writer.close() == 0
    assert ids(database) == [str(number) for number in range(30) if number not in (13, 21)]
    assert writer.counts().rejected == 2


def test_a_fault_that_nobody_foresaw_costs_the_rows_in_hand_and_no_others(url: URL) -> None:
    database = Flaky(url, iter(["unforeseen"]))
    writer = LedgerWriter(database, _FAST)
    for number in range(25):
        writer.put(row(number))
    writer.start()
    while writer.counts().waiting:
        threading.Event().wait(0.01)
    assert writer.close() == 0
    assert ids(database) == [str(number) for number in range(10, 25)]
    assert writer.counts().dropped == 10
    database.close()


def test_two_writers_share_one_database(url: URL) -> None:
    writers = [LedgerWriter(Database(url), _FAST).start() for _ in range(2)]
    chosen = random.Random(3)
    for number in range(600):
        chosen.choice(writers).put(row(number))
    assert [writer.close() for writer in writers] == [0, 0]
    database = Database(url)
    assert sorted(map(int, ids(database))) == list(range(600))
    database.close()
