"""Makes the ledger's tables, and makes those of an older kvgate what they are now."""

import logging
import time

from sqlalchemy import Computed, Connection, LargeBinary, insert, inspect, literal_column, select, text

from gateway.ledger.errors import LedgerSchemaError
from gateway.ledger.packs import table as packs
from gateway.ledger.schema import VERSION, metadata, requests, versions

log = logging.getLogger("kvgate.ledger")

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
    there = inspect(connection).get_table_names()
    metadata.create_all(connection)
    found = connection.execute(select(versions.c.version).order_by(versions.c.version.desc())).scalar()
    if found is not None and found > VERSION:
        raise LedgerSchemaError(
            f"a newer kvgate has changed the ledger's schema ({found}; this one knows {VERSION}): "
            "run that newer version here, too, or name another ledger (--ledger)"
        )
    if found is not None and found < VERSION:
        _renew(connection, found)
        # All in the message: commands have no formatter that would show fields.
        log.warning(
            "the ledger's schema went from %d to %d: gateways of older versions that use it have to be restarted "
            "as this one",
            found,
            VERSION,
        )
    elif ("requests" in there) != ("packs" in there):
        packs.rebuild(connection)  # somebody has dropped one of the two
    elif _has_pieces(connection):
        _take_over(connection)
    if found != VERSION:
        connection.execute(insert(versions).values(version=VERSION, since=time.time()))


def _renew(connection: Connection, found: int) -> None:
    _hold_writers(connection)
    if found < _RECOMPUTED_SINCE:
        connection.execute(text("ALTER TABLE requests DROP COLUMN recomputed"))
    _add_columns(connection)
    if found < _PACKS_SINCE:
        packs.rebuild(connection)
        if _has_pieces(connection):
            _empty_pieces(connection)
    elif _has_pieces(connection):
        _take_over(connection)


def _hold_writers(connection: Connection) -> None:
    """An older kvgate waits until this transaction ends: what it writes meanwhile would be in no pack."""
    if connection.dialect.name == "postgresql":  # of SQLite's transactions only one writes anyway
        connection.execute(text("LOCK TABLE requests IN EXCLUSIVE MODE"))


def _has_pieces(connection: Connection) -> bool:
    return "packed" in _columns(connection, "requests")


def _empty_pieces(connection: Connection) -> None:
    """An older kvgate that still runs goes on to fill that column: so it stays, and says which rows have no pack."""
    kind = LargeBinary().compile(connection.dialect)
    for statement in (
        "ALTER TABLE requests DROP COLUMN packed",
        f"ALTER TABLE requests ADD COLUMN packed {kind}",
        "CREATE INDEX requests_without_pack ON requests (seq) WHERE packed IS NOT NULL",
    ):
        connection.execute(text(statement))


def _take_over(connection: Connection) -> None:
    """Make packs of what an older kvgate has written since."""
    without = literal_column("packed").is_not(None)
    if connection.execute(select(requests.c.seq).where(without).limit(1)).scalar() is None:
        return
    _hold_writers(connection)
    last = packs.add(connection, without)
    if last:
        taken = text("UPDATE requests SET packed = NULL WHERE packed IS NOT NULL AND seq <= :last")
        connection.execute(taken, {"last": last})


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
