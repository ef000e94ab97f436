"""Packs and rows say the same, whatever is written, pruned and forgotten, in SQLite and in PostgreSQL."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace
from sqlalchemy import insert, select, text, update

from gateway.ledger import Database, LedgerReader, LedgerRow, LedgerUnavailableError, Where, Window
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.preparing import prepare
from gateway.ledger.schema import packs, versions
from gateway.ledger.window import ALL, EVER
from tests.gateway.ledger.rows import row

_TENANTS = ("a", "b", "", "ünïcödé 租户", "👩‍👩‍👧", "a' OR 1=1 --", " a", "A", "x" * 200)
_NAMES = ("tenant", "engine", "arrival", "prompt", "reused", "reuse_status")


def some_row(random: Random) -> LedgerRow:
    odd = random.choice([None, 0, 1, 2**31 - 1, random.randrange(9_000)])
    return replace(
        row(random.randrange(500), random.choice(_TENANTS), random.randrange(0, 1_000) / 8),
        prompt=odd,
        reused=random.choice([None, odd, 5]),
        engine=random.choice([None, "e", "f"]),
        reuse_status=random.choice(["reported", "not_reported", "inconsistent"]),
    )


class Writer:
    """Writes batches under one name."""

    def __init__(self, database: Database, name: str = "w") -> None:
        self.database, self.name, self.number = database, name, 0

    def write(self, rows: list[LedgerRow]) -> None:
        self.number += 1
        self.database.write(Batch(self.name, self.number, [encoded(each) for each in rows]))


def in_packs(database: Database, window: Window = EVER, where: Where = ALL) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for chunk in LedgerReader(database).columns(_NAMES, window, where, chunk=100):
        assert 0 < chunk.rows <= 100
        texts = {
            name: [None if code < 0 else chunk.labels[name][code] for code in codes]
            for name, codes in chunk.codes.items()
        }
        numbers = {
            name: [None if np.isnan(value) else value for value in values]
            for name, values in chunk.numbers.items()
        }
        found.update(zip(*((texts | numbers)[name] for name in _NAMES), strict=True))
    return found


def in_rows(database: Database, window: Window = EVER, where: Where = ALL) -> Counter[tuple[object, ...]]:
    rows = LedgerReader(database).rows(window, where)
    return Counter(tuple(getattr(each, name) for name in _NAMES) for each in rows)


def pack_rows(database: Database) -> list[int]:
    with database.engine.begin() as connection:
        return list(connection.execute(select(packs.c.rows).order_by(packs.c.seq)).scalars())


@pytest.mark.parametrize("seed", range(3))
def test_packs_say_what_rows_say_whatever_happens(database: Database, seed: int) -> None:
    random = Random(seed)
    writers = [Writer(database), Writer(Database(database.url), "other")]
    for _ in range(12):
        writer = random.choice(writers)
        writer.write([some_row(random) for _ in range(random.choice([1, 3, 40, 600]))])
        if random.random() < 0.3:
            list(writer.database.forget(random.choice(_TENANTS)))
        if random.random() < 0.3:
            list(writer.database.prune(random.randrange(100)))
        assert in_packs(database) == in_rows(database)
    for window in (Window(50.0), Window(None, 60.0), Window(40.125, 90.0), Window(90.0, 40.0)):
        for where in (ALL, Where(tenant=_TENANTS[3]), Where("a", engine="e"), Where("nobody")):
            assert in_packs(database, window, where) == in_rows(database, window, where)
    for tenant in _TENANTS:
        list(database.forget(tenant))
    assert pack_rows(database) == []
    writers[1].database.close()


def test_small_batches_share_a_pack_until_it_is_worth_one(database: Database) -> None:
    writer = Writer(database)
    for number in range(300):
        writer.write([row(3 * number + n) for n in range(3)])
    assert len(pack_rows(database)) == 2
    assert sum(pack_rows(database)) == 900
    (chunk,) = LedgerReader(database).columns(["reused"])
    assert chunk.numbers["reused"].tolist() == list(range(900))


def test_a_large_batch_has_several_packs(database: Database) -> None:
    Writer(database).write([row(number) for number in range(5_000)])
    assert max(pack_rows(database)) <= 1_536
    assert sum(pack_rows(database)) == 5_000


def test_two_writers_do_not_wait_for_each_others_packs(database: Database) -> None:
    for name in ("one", "other"):
        writer = Writer(database, name)
        writer.write([row(1)])
        writer.write([row(2)])
    assert pack_rows(database) == [2, 2]


def test_a_writer_whose_pack_was_deleted_begins_another(database: Database) -> None:
    writer = Writer(database)
    writer.write([row(1, "gone")])
    list(Database(database.url).forget("gone"))
    writer.write([row(2)])
    assert in_packs(database) == in_rows(database)
    assert pack_rows(database) == [1]


def test_a_batch_that_is_in_already_is_in_no_pack_again(database: Database) -> None:
    batch = Batch("w", 1, [encoded(row(1))])
    database.write(batch)
    database.write(batch)
    Database(database.url).write(batch)
    assert pack_rows(database) == [1]


def test_nothing_of_a_forgotten_tenant_is_in_any_pack(database: Database) -> None:
    rows = [replace(row(n, f"tenant {n % 3}"), model=f"model of {n % 3}") for n in range(30)]
    Writer(database).write(rows)
    list(database.forget("tenant 1"))
    with database.engine.begin() as connection:
        (data,) = connection.execute(select(packs.c.packed)).scalars()
    assert b"tenant 0" in data
    assert b"tenant 1" not in data
    assert b"model of 1" not in data


def test_of_packs_at_the_edge_only_old_rows_go_and_others_are_not_touched(database: Database) -> None:
    writer = Writer(database)
    for first in range(0, 3_000, 600):
        writer.write([row(n, arrival=float(n)) for n in range(first, first + 600)])
    list(database.prune(900.0))
    assert pack_rows(database) == [300, 600, 600, 600]
    assert in_packs(database) == in_rows(database)


def test_a_broken_pack_keeps_no_row_out_and_is_not_passed_over_in_silence(database: Database) -> None:
    writer = Writer(database)
    writer.write([row(1)])
    with database.engine.begin() as connection:
        connection.execute(update(packs).values(packed=b"no pack"))
    writer.write([row(2)])
    assert [each.id for each in LedgerReader(database).rows()] == ["1", "2"]
    with pytest.raises(LedgerUnavailableError, match="pack"):
        in_packs(database)


def as_version_4(database: Database) -> None:
    """Make a ledger as it was without packs."""
    kind = "BLOB" if database.engine.dialect.name == "sqlite" else "BYTEA"
    with database.engine.begin() as connection:
        connection.execute(text("DROP TABLE packs"))
        connection.execute(text(f"ALTER TABLE requests ADD COLUMN packed {kind} NOT NULL DEFAULT '0'"))
        connection.execute(versions.delete())
        connection.execute(insert(versions).values(version=4, since=0))


def prepared(database: Database) -> None:
    with database.engine.begin() as connection:
        prepare(connection)


def test_rows_of_an_older_ledger_get_their_packs(database: Database) -> None:
    random = Random(5)
    rows = [some_row(random) for _ in range(2_500)]
    Writer(database).write(rows)
    as_version_4(database)
    prepared(database)
    assert in_packs(database) == in_rows(database)
    assert sum(in_rows(database).values()) == len(rows)
    Writer(database, "later").write([row(1)])
    prepared(database)
    assert sum(pack_rows(database)) == len(rows) + 1


def test_rows_that_an_older_kvgate_writes_meanwhile_get_their_packs_once(database: Database) -> None:
    Writer(database).write([row(1)])
    as_version_4(database)
    prepared(database)
    older = {"sqlite": "x'00'", "postgresql": "'x'::bytea"}[database.engine.dialect.name]
    names = "id, tenant, model, route, arrival, stream, status, reuse_status, reuse_source, canon_policy"
    for number in range(2):
        with database.engine.begin() as connection:
            for tenant in ("a", "b"):
                values = (
                    f"'{number}', '{tenant}', 'm', 'chat', 5.5, false, 200, 'not_reported', '', 'off', 0, 0"
                )
                statement = (
                    f"INSERT INTO requests ({names}, canon_edits, retries, packed) VALUES ({values}, {older})"
                )
                connection.execute(text(statement))
        prepared(database)
        prepared(database)
        assert in_packs(database) == in_rows(database)
    assert sum(pack_rows(database)) == 5


@pytest.mark.parametrize(
    "names", [["packs"], ["requests"], ["requests", "writers", "scrapes", "ledger_schema"]]
)
def test_tables_that_were_dropped_leave_packs_that_say_what_rows_say(
    database: Database, names: list[str]
) -> None:
    Writer(database).write([row(number) for number in range(5)])
    with database.engine.begin() as connection:
        for name in names:
            connection.execute(text(f"DROP TABLE {name}"))
    later = Database(database.url)
    Writer(later, "later").write([row(9)])
    assert in_packs(database) == in_rows(database)
    assert sum(pack_rows(database)) == (6 if names == ["packs"] else 1)
    later.close()
