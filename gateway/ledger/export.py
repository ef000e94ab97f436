"""The ledger as a file for other tools: CSV, or Parquet."""

import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from gateway.ledger.encoding import TIERS
from gateway.ledger.errors import LedgerConfigError
from gateway.ledger.reader import LedgerReader
from gateway.ledger.row import LedgerRow
from gateway.ledger.window import ALL, EVER, Where, Window

Format = Literal["csv", "parquet"]
_Kind = Literal["text", "count", "time", "flag"]

_GROUP = 50_000  # rows of a Parquet row group, which are in memory together


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: _Kind
    of: Callable[[LedgerRow], Any]


def _plain(kind: _Kind, *names: str) -> list[_Field]:
    return [_Field(name, kind, lambda row, name=name: getattr(row, name)) for name in names]  # type: ignore[misc]


def _of_divergence(kind: _Kind, name: str) -> _Field:
    return _Field(
        f"divergence_{name}",
        kind,
        lambda row: None if row.divergence is None else getattr(row.divergence, name),
    )


FIELDS: tuple[_Field, ...] = (
    *_plain("text", "id", "tenant", "model", "route", "engine", "replica"),
    *_plain("time", "arrival", "first_token", "end"),
    *_plain("flag", "stream"),
    *_plain("count", "status", "prompt", "reused", "recomputed"),
    *(_Field(tier, "count", lambda row, tier=tier: row.by_tier.get(tier)) for tier in TIERS),  # type: ignore[misc]
    *_plain("count", "matched", "completion", "reasoning"),
    *_plain("text", "reuse_status", "reuse_source"),
    *_plain("count", "predicted", "block_size"),
    *_plain("text", "gap_cause", "canon_policy"),
    *_plain("count", "canon_rules", "canon_edits", "canon_saved"),
    _of_divergence("text", "path"),
    _of_divergence("count", "offset"),
    _of_divergence("text", "cause"),
    _of_divergence("text", "prefix_hash"),
    *_plain("count", "retries", "attempts"),
    *_plain("text", "route_reason", "route_scores"),
    *_plain("text", "finish", "error", "trace_id"),
)


def export_csv(reader: LedgerReader, file: IO[str], window: Window = EVER, where: Where = ALL) -> int:
    """Write rows below a line of names; unknown is empty, times are seconds since the epoch. Returns how many."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([field.name for field in FIELDS])
    count = 0
    for row in reader.rows(window, where):
        writer.writerow(["" if (value := field.of(row)) is None else value for field in FIELDS])
        count += 1
    return count


def export_parquet(
    reader: LedgerReader, path: Path | IO[bytes], window: Window = EVER, where: Where = ALL
) -> int:
    """The same as Parquet, with nulls and timestamps in UTC. Raises LedgerConfigError where pyarrow is missing."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise LedgerConfigError("Parquet needs pyarrow: pip install 'kvgate[parquet]'") from None
    types = {
        "text": pa.string(),
        "count": pa.int64(),
        "flag": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(field.name, types[field.kind]) for field in FIELDS])
    count = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in _groups(reader.rows(window, where)):
            columns = [_column(pa, field, rows, types[field.kind]) for field in FIELDS]
            writer.write_table(pa.table(columns, schema=schema))
            count += len(rows)
    return count


def _column(pa: Any, field: _Field, rows: list[LedgerRow], kind: Any) -> Any:
    values = [field.of(row) for row in rows]
    if field.kind == "time":
        values = [None if value is None else round(value * 1e6) for value in values]
    return pa.array(values, kind)


def _groups(rows: Iterator[LedgerRow]) -> Iterator[list[LedgerRow]]:
    while group := list(itertools.islice(rows, _GROUP)):
        yield group
