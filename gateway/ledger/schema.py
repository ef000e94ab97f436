"""The ledger's tables. Columns have the names of `LedgerRow`; NULL is `not known`, and never stands for 0."""

import logging
import time

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Computed,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
)

from gateway.ledger.errors import LedgerSchemaError

log = logging.getLogger("kvgate.ledger")

VERSION = 4  # one up with every new column, or new meaning of one: see `_add_columns`

metadata = MetaData()

# Of what cannot be right nothing can be taken away.
_RECOMPUTED = "CASE WHEN reuse_status <> 'inconsistent' THEN prompt - reused END"
_SEQ = BigInteger().with_variant(Integer, "sqlite")  # which alone counts up by itself there

requests = Table(
    "requests",
    metadata,
    Column("seq", _SEQ, primary_key=True),  # in the order of writing
    Column("id", Text, nullable=False),  # a client may choose it, so it is not unique
    Column("tenant", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("engine", Text),
    Column("replica", Text),
    Column("arrival", Float(53), nullable=False),  # seconds since the epoch, UTC, as are the next two
    Column("first_token", Float(53)),
    Column("end", Float(53)),
    Column("stream", Boolean(create_constraint=False), nullable=False),
    Column("status", Integer, nullable=False),
    Column("prompt", Integer),  # tokens, as are the next ones
    Column("reused", Integer),
    Column("recomputed", Integer, Computed(_RECOMPUTED, persisted=True)),
    Column("device", Integer),  # reused tokens by tier
    Column("host", Integer),
    Column("disk", Integer),
    Column("store", Integer),
    Column("matched", Integer),
    Column("completion", Integer),
    Column("reasoning", Integer),
    Column("reuse_status", Text, nullable=False),
    Column("reuse_source", Text, nullable=False),
    Column("predicted", Integer),
    Column("block_size", Integer),
    Column("gap_cause", Text),
    Column("canon_policy", Text, nullable=False),
    Column("canon_rules", Integer),
    Column("canon_edits", Integer, nullable=False),
    Column("canon_saved", Integer),
    Column("divergence_path", Text),
    Column("divergence_offset", Integer),
    Column("divergence_cause", Text),
    Column("divergence_hash", Text),
    Column("retries", Integer, nullable=False),
    Column("attempts", Integer),
    Column("route_reason", Text),
    Column("route_scores", Text),
    Column("finish", Text),
    Column("error", Text),
    Column("trace_id", Text),
    # The same again in one piece, which is what a report over a million rows can read in a second.
    Column("packed", LargeBinary, nullable=False),
    Index("requests_arrival", "arrival"),
)

writers = Table(
    "writers",
    metadata,
    Column("id", Text, primary_key=True),  # of one writing process
    Column(
        "batch", BigInteger, nullable=False
    ),  # the last one that is in: a repeated one is not written twice
    Column("seen", Float(53), nullable=False),  # when, seconds since the epoch
)

# What engines counted themselves, from time to time: what the sums of requests are compared with.
scrapes = Table(
    "scrapes",
    metadata,
    Column("seq", _SEQ, primary_key=True),
    Column("engine", Text, nullable=False),
    Column("at", Float(53), nullable=False),  # seconds since the epoch, UTC
    Column(
        "prompt", BigInteger
    ),  # tokens since the engine's start, as are the next two; NULL: it does not count that
    Column("reused", BigInteger),
    Column("recomputed", BigInteger),
    Index("scrapes_at", "at"),
)

_versions = Table(
    "ledger_schema",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("since", Float(53), nullable=False),
)

_RECOMPUTED_SINCE = 4  # the version from which on it is what it is
_POSTGRES_LOCK = 0x6B76676174650001  # any number, the same in every kvgate


def prepare(connection: Connection) -> None:
    """Create what is not there, inside the caller's transaction; several processes may do so at the same time.

    Raises:
        LedgerSchemaError: a newer kvgate has written here.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRES_LOCK})
    metadata.create_all(connection)
    found = connection.execute(select(_versions.c.version).order_by(_versions.c.version.desc())).scalar()
    if found is not None and found > VERSION:
        raise LedgerSchemaError(
            f"a newer kvgate has changed the ledger's schema ({found}; this one knows {VERSION}): "
            "run that newer version here, too, or name another ledger (--ledger)"
        )
    if found is not None and found < VERSION:
        if found < _RECOMPUTED_SINCE:
            connection.execute(text("ALTER TABLE requests DROP COLUMN recomputed"))
        _add_columns(connection)
        # All in the message: commands have no formatter that would show fields.
        log.warning(
            "the ledger's schema went from %d to %d: gateways of older versions that use it have to be restarted "
            "as this one",
            found,
            VERSION,
        )
    if found != VERSION:
        connection.execute(insert(_versions).values(version=VERSION, since=time.time()))


def _add_columns(connection: Connection) -> None:
    """What an older kvgate's tables have not; its rows say NULL there, so such a column must take that."""
    for table in metadata.sorted_tables:
        there = {column["name"] for column in inspect(connection).get_columns(table.name)}
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
