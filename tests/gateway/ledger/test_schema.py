"""A ledger that an older kvgate began is used on."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.engine import URL

from gateway.ledger import Database, LedgerReader
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.preparing import prepare
from gateway.ledger.schema import VERSION
from tests.gateway.ledger.rows import row


def test_columns_that_an_older_ledger_has_not_are_added_and_its_rows_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    database = Database(URL.create("sqlite", database=str(path)))
    database.write(Batch("writer", 1, [encoded(row(1))]))
    database.close()
    with sqlite3.connect(path) as raw:  # as version 1 had it
        raw.execute("ALTER TABLE requests DROP COLUMN attempts")
        raw.execute("ALTER TABLE requests DROP COLUMN recomputed")
        raw.execute(
            "ALTER TABLE requests ADD COLUMN recomputed INTEGER GENERATED ALWAYS AS (prompt - reused)"
        )
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


@pytest.mark.parametrize("older", [False, True])
def test_of_what_cannot_be_right_nothing_is_taken_away(database: Database, older: bool) -> None:
    """The column says what the row says, also in a ledger that was begun when it did not."""
    odd = replace(row(1), reused=121, prompt=100, reuse_status="inconsistent")
    database.write(Batch("writer", 1, [encoded(row(3)), encoded(odd)]))
    if older:
        with database.engine.begin() as connection:
            connection.execute(text("ALTER TABLE requests DROP COLUMN recomputed"))
            kind = "VIRTUAL" if database.engine.dialect.name == "sqlite" else "STORED"
            old = f"recomputed INTEGER GENERATED ALWAYS AS (prompt - reused) {kind}"
            connection.execute(text(f"ALTER TABLE requests ADD COLUMN {old}"))
            connection.execute(text("DELETE FROM ledger_schema"))
            connection.execute(text("INSERT INTO ledger_schema VALUES (3, 0)"))
            prepare(connection)
    with database.engine.begin() as connection:
        kept = connection.execute(text("SELECT recomputed FROM requests ORDER BY seq")).all()
    assert [each[0] for each in kept] == [100, None]
    reader = LedgerReader(database)
    assert [each.recomputed for each in reader.rows()] == [100, None]
    (chunk,) = reader.columns(["recomputed"])
    assert chunk.numbers["recomputed"][0] == 100
    assert np.isnan(chunk.numbers["recomputed"][1])
