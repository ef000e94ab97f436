"""The ledger's tables. Columns have the names of `LedgerRow`; NULL is `not known`, and never stands for 0."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Computed,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

VERSION = 6  # one up with every new column, or new meaning of one: see `preparing`

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
    Index("requests_arrival", "arrival"),
)

# What reports add up, many rows in one piece and column by column: a million rows of `requests` take seconds to read.
# Whatever puts rows in there, or deletes them, does so here as well.
packs = Table(
    "packs",
    metadata,
    Column("seq", _SEQ, primary_key=True),
    Column("rows", Integer, nullable=False),
    Column("first_arrival", Float(53), nullable=False),  # the earliest of its rows, seconds since the epoch
    Column("last_arrival", Float(53), nullable=False),
    Column("packed", LargeBinary, nullable=False),
    Index("packs_last_arrival", "last_arrival"),
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

# Tenants that were forgotten: rows of what arrived until then are not put in any more, whoever has them still.
purges = Table(
    "purges",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("at", Float(53), nullable=False),  # the last time, seconds since the epoch
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

versions = Table(
    "ledger_schema",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("since", Float(53), nullable=False),
)
