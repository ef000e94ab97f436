import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy.engine import URL

from gateway.ledger import (
    NUMBERS,
    TEXTS,
    Database,
    LedgerConfigError,
    LedgerReader,
    LedgerRow,
    LedgerUnavailableError,
    Where,
    Window,
)
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from tests.gateway.ledger.packs.saying import number_of, text_of
from tests.gateway.ledger.rows import any_row, row


def filled(database: Database, rows: list[LedgerRow]) -> LedgerReader:
    if rows:
        database.write(Batch("test", 1, [encoded(each) for each in rows]))
    return LedgerReader(database)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(any_row, max_size=12), chunk=st.integers(1, 5))
def test_columns_say_what_rows_say(
    tmp_path_factory: pytest.TempPathFactory, rows: list[LedgerRow], chunk: int
) -> None:
    database = Database(URL.create("sqlite", database=str(tmp_path_factory.mktemp("l") / "ledger.db")))
    database.prepare()
    reader = filled(database, rows)
    assert list(reader.rows(chunk=chunk)) == rows
    chunks = list(reader.columns([*NUMBERS, *TEXTS], chunk=chunk))
    assert sum(each.rows for each in chunks) == len(rows)
    for name in NUMBERS if rows else ():
        found = np.concatenate([each.numbers[name] for each in chunks])
        np.testing.assert_array_equal(found, [number_of(each, name) for each in rows])
    for name in TEXTS:
        found_texts = [
            None if code < 0 else each.labels[name][code] for each in chunks for code in each.codes[name]
        ]
        assert found_texts == [text_of(each, name) for each in rows]
    database.close()


def test_a_window_takes_its_start_and_leaves_its_end_whatever_the_order_of_writing(
    database: Database,
) -> None:
    arrivals = [5.0, 1.0, 3.0, 2.0, 4.0, 2.999]
    reader = filled(database, [row(number, arrival=at) for number, at in enumerate(arrivals)])
    assert [each.arrival for each in reader.rows(Window(2.0, 4.0))] == [3.0, 2.0, 2.999]
    assert [each.arrival for each in reader.rows(Window(since=4.0))] == [5.0, 4.0]
    assert [each.arrival for each in reader.rows(Window(until=2.0))] == [1.0]
    assert list(reader.rows(Window(6.0, 7.0))) == []
    (chunk,) = reader.columns(["arrival"], Window(2.0, 4.0))
    assert chunk.numbers["arrival"].tolist() == [3.0, 2.0, 2.999]


def test_where_takes_rows_with_just_these_values(database: Database) -> None:
    rows = [replace(row(n, tenant=f"t{n % 2}"), engine=f"e{n % 3}") for n in range(12)]
    reader = filled(database, rows)
    wanted = Where(tenant="t1", engine="e2")
    assert [each.id for each in reader.rows(where=wanted)] == ["5", "11"]
    assert sum(each.rows for each in reader.columns(["prompt"], where=wanted)) == 2


def test_an_empty_ledger_has_no_rows(database: Database) -> None:
    database.prepare()
    assert list(LedgerReader(database).rows()) == []
    assert list(LedgerReader(database).columns(["prompt"])) == []


def test_a_column_that_is_not_there_is_refused(database: Database) -> None:
    with pytest.raises(LedgerConfigError, match="no column 'tokens'"):
        list(LedgerReader(database).columns(["tokens"]))


def test_a_ledger_that_is_no_database_says_so_without_a_statement(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("l") / "ledger.db"
    path.write_bytes(b"no database at all, but long enough to look like one" * 100)
    database = Database(URL.create("sqlite", database=str(path)))
    with pytest.raises(LedgerUnavailableError, match="not a database") as raised:
        list(LedgerReader(database).rows())
    assert "SELECT" not in str(raised.value)
