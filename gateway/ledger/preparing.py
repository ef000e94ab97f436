"""Makes the ledger's tables, and makes those of an older kvgate what they are now."""

import time

from sqlalchemy import Computed, Connection, insert, inspect, select, text

from gateway.ledger.errors import LedgerSchemaError
from gateway.ledger.packs.table import rebuild
from gateway.ledger.schema import VERSION, metadata, versions

_RECOMPUTED_SINCE = 4  # the version from which on it is what it is
_PACKS_SINCE = 5  # before, each row had its own piece, in a column
_POSTGRES_LOCK = 0x6B76676174650001  # any number, the same in every kvgate


def prepare(connection: Connection) -> None:
    """Create what is not there, inside the caller's transaction; several processes may do so at the same time.

    Raises:
        LedgerSchemaError: a newer kvgate has written here.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRES_LOCK})
    metadata.create_all(connection)
    found = connection.execute(select(versions.c.version).order_by(versions.c.version.desc())).scalar()
    if found is not None and found > VERSION:
        raise LedgerSchemaError(
            f"a newer kvgate has changed the ledger's schema ({found}; this one knows {VERSION}): "
            "run that newer version here, too, or name another ledger (--ledger)"
        )
    if found is not None and found < VERSION:
        _renew(connection, found)
    if found != VERSION:
        connection.execute(insert(versions).values(version=VERSION, since=time.time()))


def _renew(connection: Connection, found: int) -> None:
    if connection.dialect.name == "postgresql":
        # An older kvgate that still writes waits: its rows would be in no pack.
        connection.execute(text("LOCK TABLE requests IN EXCLUSIVE MODE"))
    if found < _RECOMPUTED_SINCE:
        connection.execute(text("ALTER TABLE requests DROP COLUMN recomputed"))
    _add_columns(connection)
    if found < _PACKS_SINCE:
        rebuild(connection)
        if "packed" in _columns(connection, "requests"):
            connection.execute(text("ALTER TABLE requests DROP COLUMN packed"))


def _add_columns(connection: Connection) -> None:
    """What an older kvgate's tables have not; its rows say NULL there, so such a column must take that."""
    for table in metadata.sorted_tables:
        there = _columns(connection, table.name)
        for column in table.columns:
            if column.name not in there:
                assert column.nullable, column.name
                quote = connection.dialect.identifier_preparer.quote
                kind = column.type.compile(connection.dialect)
                if isinstance(column.computed, Computed):
                    # SQLite adds no column that is stored.
                    how = "VIRTUAL" if connection.dialect.name == "sqlite" else "STORED"
                    kind += f" GENERATED ALWAYS AS ({column.computed.sqltext}) {how}"
                statement = f"ALTER TABLE {quote(table.name)} ADD COLUMN {quote(column.name)} {kind}"
                connection.execute(text(statement))


def _columns(connection: Connection, table: str) -> set[str]:
    return {column["name"] for column in inspect(connection).get_columns(table)}
