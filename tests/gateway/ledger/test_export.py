import csv
import io
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy.engine import URL

from gateway.ledger import Database, Divergence, LedgerReader, LedgerRow, Where, Window
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.export import FIELDS, export_csv, export_parquet
from gateway.ledger.schema import requests
from tests.gateway.ledger.rows import row
from tests.requirements import require

ROWS = [
    replace(row(1), reused=None, reuse_status="not_reported", first_token=None),
    replace(row(2), reused=0, by_tier={"device": 0}, model='a "quoted", name\nof two lines'),
    replace(row(3), divergence=Divergence("messages[0].content", 7, "another clock", "ab" * 16)),
]


@pytest.fixture
def reader(tmp_path: Path) -> LedgerReader:
    database = Database(URL.create("sqlite", database=str(tmp_path / "ledger.db")))
    database.write(Batch("t", 1, [encoded(each) for each in ROWS]))
    return LedgerReader(database)


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_column_of_the_ledger_is_exported() -> None:
    names = {"divergence_prefix_hash": "divergence_hash"}
    exported = {names.get(field.name, field.name) for field in FIELDS}
    assert exported == {column.name for column in requests.c} - {"seq"}


def test_csv_tells_0_from_what_is_not_known(reader: LedgerReader) -> None:
    file = io.StringIO()
    assert export_csv(reader, file) == 3
    first, second, third = read_csv(file.getvalue())
    assert (first["reused"], first["recomputed"], first["first_token"], first["device"]) == ("", "", "", "")
    assert (second["reused"], second["recomputed"], second["device"]) == ("0", "102", "0")
    assert second["model"] == ROWS[1].model
    assert (third["divergence_offset"], third["divergence_cause"]) == ("7", "another clock")


def test_parquet_has_nulls_times_and_the_same_numbers(reader: LedgerReader, tmp_path: Path) -> None:
    require("pyarrow", "pip install 'kvgate[parquet]'")
    import pyarrow.parquet as parquet

    path = tmp_path / "rows.parquet"
    assert export_parquet(reader, path) == 3
    table: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    assert [each["reused"] for each in table] == [None, 0, 3]
    assert [each["id"] for each in table] == ["1", "2", "3"]
    assert math.isclose(table[1]["arrival"].timestamp(), 1002.0)
    assert table[0]["first_token"] is None
    assert table[2]["stream"] is False


def test_an_empty_choice_is_a_file_without_rows(reader: LedgerReader, tmp_path: Path) -> None:
    require("pyarrow", "pip install 'kvgate[parquet]'")
    import pyarrow.parquet as parquet

    file = io.StringIO()
    assert export_csv(reader, file, Window(since=1e10)) == 0
    assert file.getvalue().count("\n") == 1
    assert export_parquet(reader, tmp_path / "rows.parquet", where=Where(tenant="nobody")) == 0
    assert parquet.read_table(tmp_path / "rows.parquet").num_rows == 0


def test_an_exported_row_has_all_that_the_row_has(reader: LedgerReader) -> None:
    (found,) = (each for each in reader.rows() if each.id == "3")
    assert found == ROWS[2]
    assert isinstance(found, LedgerRow)
