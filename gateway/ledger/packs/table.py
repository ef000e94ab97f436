"""Packs in the database: every row of `requests` is in one of them, put in and deleted with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, select, update

from gateway.ledger.encoding import Encoded
from gateway.ledger.packs.pack import GATHERED, Pack, gathered, joined, kept
from gateway.ledger.packs.stored import StoredPack, packed, unpacked
from gateway.ledger.schema import packs, requests

_ENOUGH = 512  # rows; a pack that has fewer takes its writer's next ones in as well
_MOST = 1024  # rows that come in at once
_AT_ONCE = 32  # packs that one transaction looks at or deletes, so that nobody waits long for its locks

# Made once, as that takes longer than running them.
_INSERT = insert(packs)
_CHANGE = update(packs).where(packs.c.seq == bindparam("mine"), packs.c.packed == bindparam("as_i_left_it"))

Keep = Callable[[StoredPack], NDArray[np.bool_]]  # which rows stay, shape [rows]


@dataclass(frozen=True, slots=True)
class Last:
    """The pack that has a writer's last rows, as that writer left it."""

    seq: int
    pack: Pack
    data: bytes


@dataclass(frozen=True, slots=True)
class Addition:
    """Rows for one pack: made before a transaction begins, so that it is short."""

    rows: Pack
    whole: Pack  # with those that are in the writer's last pack, where it is small
    data: bytes  # of the whole
    last: Last | None = None  # whose place the whole takes; None: it is a pack of its own


def additions(rows: Sequence[Encoded], last: Last | None) -> list[Addition]:
    """Rows, however many, for `put`."""
    parts = [gathered(rows[at : at + _MOST]) for at in range(0, len(rows), _MOST)]
    found = [Addition(part, part, packed(part)) for part in parts]
    if found and last is not None and last.pack.rows < _ENOUGH:
        whole = joined(last.pack, parts[0])
        found[0] = Addition(parts[0], whole, packed(whole), last)
    return found


def put(connection: Connection, given: Sequence[Addition]) -> Last | None:
    """Put rows in; the pack that has the last of them."""
    last = None
    for each in given:
        last = _put(connection, each)
    return last


def _put(connection: Connection, given: Addition) -> Last:
    if given.last is not None:
        mine = {"mine": given.last.seq, "as_i_left_it": given.last.data}
        if connection.execute(_CHANGE, mine | _values(given.whole, given.data)).rowcount:
            return Last(given.last.seq, given.whole, given.data)
        given = Addition(given.rows, given.rows, packed(given.rows))  # rows were deleted there
    inserted = connection.execute(_INSERT, _values(given.whole, given.data)).inserted_primary_key
    assert inserted is not None, "one row was put in"
    return Last(int(inserted[0]), given.whole, given.data)


def delete_before(connection: Connection, before: float) -> bool:
    """Delete some packs of which all rows arrived before then; whether there were any."""
    some = select(packs.c.seq).where(packs.c.last_arrival < before).limit(_AT_ONCE)
    return bool(connection.execute(delete(packs).where(packs.c.seq.in_(some))).rowcount)


def keep_since(connection: Connection, before: float, behind: int) -> int | None:
    """Take rows that arrived before then out of the next packs `behind` that one; the last of these, None: no more."""

    def since(stored: StoredPack) -> NDArray[np.bool_]:
        arrival = np.empty(stored.rows)
        stored.fill("arrival", arrival)
        return arrival >= before

    return _keep(connection, since, behind, packs.c.first_arrival < before)


def keep_others(connection: Connection, tenant: str, behind: int) -> int | None:
    """Take rows of a tenant out of the next packs, as `keep_since`."""

    def others(stored: StoredPack) -> NDArray[np.bool_]:
        labels, places = stored.coded("tenant")
        which = np.array([label != tenant for label in labels])[places]
        return np.broadcast_to(which, stored.rows)

    return _keep(connection, others, behind)


def _keep(connection: Connection, keep: Keep, behind: int, *conditions: Any) -> int | None:
    query = select(packs.c.seq, packs.c.packed).where(packs.c.seq > behind, *conditions)
    found = connection.execute(query.order_by(packs.c.seq).limit(_AT_ONCE).with_for_update()).all()
    for seq, data in found:
        which = keep(StoredPack.of(data))
        if not which.any():
            connection.execute(delete(packs).where(packs.c.seq == seq))
        elif not which.all():
            left = kept(unpacked(data), which)
            connection.execute(update(packs).where(packs.c.seq == seq).values(_values(left, packed(left))))
    return found[-1][0] if found else None


def rebuild(connection: Connection) -> None:
    """Make all packs anew from `requests`."""
    connection.execute(delete(packs))
    add(connection)


def add(connection: Connection, *conditions: ColumnElement[bool]) -> int:
    """Make packs of rows that are in none; the last of these rows, 0: there are none."""
    wanted = select(*(requests.c[name] for name in GATHERED), requests.c.seq).where(*conditions)
    wanted, behind = wanted.order_by(requests.c.seq).limit(_MOST), 0
    while True:
        cursor = connection.execute(wanted.where(requests.c.seq > behind)).cursor
        assert cursor is not None, "a query has a cursor"
        found = cursor.fetchall()  # the driver's own tuples, which takes half the time
        if not found:
            return behind
        pack, behind = gathered(found, (*GATHERED, "seq")), found[-1][-1]
        _put(connection, Addition(pack, pack, packed(pack)))


def _values(pack: Pack, data: bytes) -> dict[str, Any]:
    arrival = pack.numbers["arrival"]
    return {
        "rows": pack.rows,
        "first_arrival": float(arrival.min()),
        "last_arrival": float(arrival.max()),
        "packed": data,
    }
