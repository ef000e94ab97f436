"""Tenants that were forgotten, as every writer of the ledger sees them.

Another gateway may have rows of such a tenant in its queue, or in a transaction that is open while rows are deleted.
So a purge leaves a mark first, and a writer looks at the marks in the transaction that puts its rows in: what arrived
until the mark stays out. No transaction that has not seen the mark is still open once it is there.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, text

from gateway.ledger.encoding import COLUMNS, Encoded
from gateway.ledger.schema import purges

_KEPT_S = 30 * 86_400.0  # a mark; no row waits in a gateway for longer
_TENANT, _ARRIVAL = COLUMNS.index("tenant"), COLUMNS.index("arrival")
_MARK = text(
    "INSERT INTO purges (tenant, at) VALUES (:tenant, :at) ON CONFLICT (tenant) "
    "DO UPDATE SET at = excluded.at WHERE purges.at < excluded.at"
)
_MARKS = "SELECT tenant, at FROM purges"

Marks = Mapping[str, float]  # by tenant, until when what arrived is forgotten, seconds since the epoch


def mark(connection: Connection, tenant: str, at: float) -> None:
    """In a transaction of its own, before any row is deleted. Waits for those that put rows in now."""
    if connection.dialect.name == "postgresql":  # of SQLite's transactions only one writes anyway
        # A writer's first statement is one to this table, also an older kvgate's, and reads marks behind it.
        connection.execute(text("LOCK TABLE writers IN SHARE MODE"))
    connection.execute(_MARK, {"tenant": tenant, "at": at})
    connection.execute(delete(purges).where(purges.c.at < at - _KEPT_S))


def marks(connection: Connection) -> Marks:
    """In a writer's transaction, behind its first statement."""
    return dict(connection.exec_driver_sql(_MARKS).tuples().all())


def kept(rows: Sequence[Encoded], marks: Marks) -> Sequence[Encoded]:
    """The rows that may go in: the same sequence where all may."""
    if not marks or not any(row[_TENANT] in marks for row in rows):
        return rows
    return [row for row in rows if row[_ARRIVAL] > marks.get(row[_TENANT], float("-inf"))]
