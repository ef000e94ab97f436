"""A tenant is forgotten in a ledger that other gateways write at the same time: nothing of it comes behind."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.engine import URL

from gateway.ledger import Database, LedgerReader, LedgerWriter, WriterSettings
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.packs import table
from gateway.ledger.purges import kept
from gateway.ledger.schema import purges
from tests.gateway.ledger.rows import row
from tests.gateway.ledger.writing_process import WritingProcess
from tests.waiting import PATIENCE_S, wait_until

NOW = 10_000.0
PATIENT = 60  # seconds for a lock


def batch(number: int, *rows: Any, writer: str = "other") -> Batch:
    return Batch(writer, number, [encoded(each) for each in rows])


def found(database: Database) -> dict[str, list[int]]:
    """Rows by tenant; packs have the same."""
    rows: dict[str, list[int]] = {}
    for each in LedgerReader(database).rows():
        rows.setdefault(each.tenant, []).append(int(each.id))
    packed = sum(chunk.rows for chunk in LedgerReader(database).columns(["prompt"]))
    assert packed == sum(map(len, rows.values()))
    return rows


def test_a_batch_that_another_gateway_is_putting_in_is_forgotten_with_the_rest(
    url: URL, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, purging = Database(url, PATIENT), Database(url, PATIENT)
    purging.prepare()
    inside, go_on = threading.Event(), threading.Event()
    put = table.put

    def slowly(*args: Any) -> Any:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return put(*args)

    monkeypatch.setattr("gateway.ledger.packs.table.put", slowly)
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(other.write, batch(1, row(1, "red"), row(2, "blue"), row(3, "red")))
        assert inside.wait(PATIENCE_S)
        forgetting = threads.submit(lambda: sum(purging.forget("red", NOW)))
        time.sleep(
            0.5
        )  # it is in the middle of it, or waits; either way it has to be as if it came before or behind
        go_on.set()
        assert writing.result() == 0
        assert forgetting.result() == 2
    assert found(purging) == {"blue": [2]}
    for each in (other, purging):
        each.close()


def test_what_waits_in_another_gateway_stays_out_and_what_comes_later_does_not(url: URL) -> None:
    other, purging = Database(url), Database(url)
    other.write(batch(1, row(1, "red"), row(2, "blue")))
    assert sum(purging.forget("red", NOW)) == 1
    late = [row(3, "red", NOW - 1), row(4, "blue", NOW - 1), row(5, "red", NOW), row(6, "red", NOW + 1)]
    assert other.write(batch(2, *late)) == 2
    assert found(other) == {"blue": [2, 4], "red": [6]}
    assert other.write(batch(3, row(7, "red", NOW - 5))) == 1  # nothing of it goes in
    assert other.write(batch(3, row(7, "red", NOW - 5))) == 0  # and it is not tried again
    assert other.write(batch(4, row(8, "red", NOW + 2))) == 0
    assert found(other) == {"blue": [2, 4], "red": [6, 8]}
    for each in (other, purging):
        each.close()


def test_what_was_forgotten_stays_so_when_a_clock_that_is_behind_says_it_again(database: Database) -> None:
    list(database.forget("red", NOW))
    list(database.forget("red", NOW - 100))
    assert database.write(batch(1, row(1, "red", NOW - 1))) == 1


def test_marks_are_dropped_when_no_row_can_wait_for_so_long_any_more(database: Database) -> None:
    list(database.forget("red", 0.0))
    list(database.forget("blue"))
    with database.engine.begin() as connection:
        assert [each.tenant for each in connection.execute(select(purges))] == ["blue"]


def test_a_process_that_goes_on_writing_puts_nothing_in_any_more(url: URL) -> None:
    """Its rows arrived long ago, by what they say, whenever they are written."""
    stated = url.render_as_string(hide_password=False)
    processes = {name: WritingProcess(stated, name) for name in ("red", "blue")}
    for process in processes.values():
        while process.line().written < 100:
            continue
    database = Database(url, PATIENT)
    assert sum(database.forget("red")) >= 100
    assert all(each.tenant == "blue" for each in LedgerReader(database).rows())
    for process in processes.values():
        for _ in range(50):
            process.line()
    said = {name: process.end() for name, process in processes.items()}
    rows = found(database)
    assert set(rows) == {"blue"}
    assert len(rows["blue"]) == said["blue"].written
    database.close()


def test_a_writer_says_how_many_were_forgotten(database: Database, url: URL) -> None:
    list(database.forget("red", NOW))
    writer = LedgerWriter(Database(url), WriterSettings(interval_s=0.01)).start()
    for number in range(10):
        writer.put(row(number, "red" if number % 2 else "blue"))
    wait_until(lambda: not writer.counts().waiting, "all are written")
    counts = writer.counts()
    assert (counts.written, counts.forgotten, counts.dropped) == (5, 5, 0)
    writer.close()


def test_where_nobody_was_forgotten_rows_go_in_as_they_are() -> None:
    rows = [encoded(row(1, "red"))]
    assert kept(rows, {}) is rows
    assert kept(rows, {"blue": NOW}) is rows
    assert kept(rows, {"red": NOW}) == []
