"""A ledger that an older kvgate began is used on."""

import sqlite3
from pathlib import Path

from sqlalchemy.engine import URL

from gateway.ledger import Database, LedgerReader
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.schema import VERSION
from tests.gateway.ledger.rows import row


def test_columns_that_an_older_ledger_has_not_are_added_and_its_rows_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    database = Database(URL.create("sqlite", database=str(path)))
    database.write(Batch("writer", 1, [encoded(row(1))]))
    database.close()
    with sqlite3.connect(path) as raw:  # as version 1 had it
        raw.execute("ALTER TABLE requests DROP COLUMN attempts")
        raw.execute("UPDATE ledger_schema SET version = 1")
    raw.close()

    database = Database(URL.create("sqlite", database=str(path)))
    database.write(Batch("writer", 2, [encoded(row(2))]))
    assert [(each.id, each.attempts, each.prompt) for each in LedgerReader(database).rows()] == [
        ("1", None, 101),
        ("2", None, 102),
    ]
    database.close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("SELECT max(version) FROM ledger_schema").fetchone() == (VERSION,)
    raw.close()
