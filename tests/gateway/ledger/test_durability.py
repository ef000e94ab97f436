"""Real processes, killed, short of disk space, or side by side."""

import random
import sqlite3
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from sqlalchemy.engine import URL

from gateway.ledger import Database, LedgerReader, LedgerWriter, WriterSettings
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.place import ledger_url
from gateway.ledger.preparing import prepare
from tests.gateway.ledger.postgres import Postgres
from tests.gateway.ledger.rows import row
from tests.gateway.ledger.writing_process import WritingProcess


def ids(url: URL, tenant: str | None = None) -> list[int]:
    database = Database(url)
    found = [int(each.id) for each in LedgerReader(database).rows() if tenant in (None, each.tenant)]
    database.close()
    return found


def begin(url: URL) -> None:
    """The ledger, still without rows."""
    database = Database(url)
    with database.engine.begin() as connection:
        prepare(connection)
    database.close()


def is_whole(path: Path) -> bool:
    with sqlite3.connect(path) as connection:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_kill_at_any_time_loses_nothing_that_was_written_and_breaks_nothing(url: URL) -> None:
    chosen = random.Random(11)
    stated = url.render_as_string(hide_password=False)
    begin(url)  # on a busy machine a process may be killed before it has written anything
    for life in range(4):
        first = life * 1_000_000
        process = WritingProcess(stated, f"life{life}", first)
        for _ in range(chosen.randrange(2, 120)):
            process.line()
        said = process.kill()
        kept = ids(url, f"life{life}")
        assert kept == list(range(first, first + len(kept))), "in order, without a gap, each once"
        assert len(kept) >= said.written
        if url.drivername == "sqlite":
            assert is_whole(Path(str(url.database)))


def test_a_row_waits_less_than_a_second_by_default() -> None:
    assert WriterSettings().interval_s < 1.0


def test_a_process_that_ends_has_written_all(url: URL) -> None:
    process = WritingProcess(url.render_as_string(hide_password=False), "one")
    for _ in range(30):
        process.line()
    said = process.end()
    assert said.dropped == 0
    assert ids(url) == list(range(said.written))


def found_elsewhere(path: Path) -> int:
    """Rows that another process finds, which opens the ledger and closes it, as `kvgate audit` does."""
    code = (
        "import os, sys; from gateway.ledger import LedgerReader; from gateway.ledger.opening import open_database;"
        "d = open_database(sys.argv[1], os.environ); print(sum(1 for _ in LedgerReader(d).rows())); d.close()"
    )
    return int(
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True).stdout
    )


def test_rows_written_after_a_report_are_found_though_their_process_has_the_file_twice(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    url = ledger_url(str(path), {})
    assert url is not None
    writing = Database(url)
    writing.write(Batch("one", 1, [encoded(row(1))]))
    beside = Database(url)  # as the gateway has one for scrapes, and one while a tenant is forgotten
    assert found_elsewhere(path) == 1
    writing.write(Batch("one", 2, [encoded(row(2))]))
    assert found_elsewhere(path) == 2
    beside.close()
    writing.close()


def test_a_full_disk_drops_counts_and_recovers_without_a_double(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    url = URL.create("sqlite", database=str(path))
    process = WritingProcess(str(path), "one", limit=200_000)
    while process.line().failing is None:
        pass
    while process.line().dropped == 0:
        pass
    assert is_whole(path)
    process.lift()
    while process.line().failing is not None:
        pass
    said = process.end()
    kept = ids(url)
    assert len(kept) == said.written
    assert all(a < b for a, b in pairwise(kept))
    assert kept[-1] + 1 == said.written + said.dropped
    assert is_whole(path)


def test_two_gateways_write_one_ledger_while_it_is_read_and_pruned(url: URL) -> None:
    stated = url.render_as_string(hide_password=False)
    processes = [WritingProcess(stated, name, patient=True) for name in ("a", "b")]
    database = Database(url, lock_s=600)  # these hold it for as long as the disk takes
    database.prepare()
    reader = LedgerReader(database)
    for _ in range(40):
        for process in processes:
            process.line()
        sum(each.rows for each in reader.columns(["prompt"]))
    for process in processes:
        while process.line().written < 100:
            continue
    assert sum(database.prune(100.0)) == 200
    said = [process.end() for process in processes]
    for name, its in zip(("a", "b"), said, strict=True):
        kept = ids(url, name)
        assert its.dropped == 0
        assert kept == list(range(100, its.written))
    database.close()


def test_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    database = Database(URL.create("sqlite", database=str(tmp_path / "ledger.db")))
    database.prepare()
    writer = LedgerWriter(database, WriterSettings(interval_s=0.01, first_retry_s=0.01)).start()
    with sqlite3.connect(tmp_path / "ledger.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        writer.put(row(1))
        while writer.counts().failing is None:
            time.sleep(0.01)
        assert writer.counts().written == 0
        other.execute("COMMIT")
    assert writer.close() == 0
    assert ids(database.url) == [1]


def test_a_file_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    database = Database(URL.create("sqlite", database=str(path)))
    writer = LedgerWriter(database, WriterSettings(interval_s=0.01)).start()
    writer.put(row(1))
    while not writer.counts().written:
        pass
    for each in tmp_path.iterdir():
        each.unlink()
    writer.put(row(2))
    writer.close()
    assert ids(database.url) == [2]


def test_a_server_that_goes_away_and_comes_back_has_each_row_once() -> None:
    with Postgres.started() as server:
        stated = server.new_database()
        process = WritingProcess(stated, "one")
        for _ in range(20):
            process.line()
        server.stop()
        while process.line().failing is None:
            continue
        server.start()
        while process.line().failing is not None:
            continue
        said = process.end()
        url = ledger_url(stated, {})
        assert url is not None
        kept = ids(url)
        assert len(kept) == said.written
        assert all(a < b for a, b in pairwise(kept))
        assert kept[-1] + 1 == said.written + said.dropped
