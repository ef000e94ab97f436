from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.ledger import Database, LedgerConfigError, LedgerReader
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.ledger.prices import PriceTable, bills
from tests.gateway.ledger.rows import row

PRICES = """
currency: EUR
models:
  model: {input: 2.0, cached_input: 0.5, output: 8}
  other: {input: 1, output: 1}
"""


def table(tmp_path: Path, text: str = PRICES) -> PriceTable:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return PriceTable.load(path)


def test_tokens_become_money_by_tenant_and_kind(database: Database, tmp_path: Path) -> None:
    rows = [
        replace(row(1, "a"), prompt=1_000_000, reused=400_000, completion=100_000),
        replace(row(2, "a"), prompt=1_000_000, reused=None, completion=0, reuse_status="not_reported"),
        replace(row(3, "b"), prompt=500_000, reused=500_000, completion=None),
        replace(row(4, "b"), model="nobody knows"),
        replace(row(5, "b"), prompt=None),
    ]
    database.write(Batch("t", 1, [encoded(each) for each in rows]))
    found = bills(LedgerReader(database), table(tmp_path))
    assert found["a"].known == Decimal("0.6") * 2 + Decimal("0.4") / 2 + Decimal("0.1") * 8
    assert found["a"].at_least == found["a"].known + Decimal("0.5")
    assert found["a"].at_most == found["a"].known + 2
    assert found["a"].saved == Decimal("0.4") * Decimal("1.5")
    assert (found["a"].requests, found["a"].unpriced) == (2, 0)
    assert found["b"].known == found["b"].at_most == Decimal("0.25")
    assert (found["b"].requests, found["b"].unpriced) == (3, 2)


def test_a_star_is_for_models_without_a_price_of_their_own(tmp_path: Path) -> None:
    prices = table(tmp_path, "models: {a: {input: 1, output: 1}, '*': {input: 7, output: 7}}")
    assert [prices.of(name).input for name in ("a", "b")] == [1, 7]  # type: ignore[union-attr]
    assert table(tmp_path).of("b") is None


def test_json_is_read_too(tmp_path: Path) -> None:
    assert table(tmp_path, '{"models": {"m": {"input": 0.1, "output": 0.2}}}').of("m").input == Decimal("0.1")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("models: {m: {input: -1, output: 1}}", "models.m.input"),
        ("models: {m: {input: 1}}", "models.m.output"),
        ("models: {m: {input: 1, output: 1, cached: 1}}", "models.m.cached"),
        ("models: {m: {input: .nan, output: 1}}", "models.m.input"),
        ("[]", "the file"),
        ("models: [", "no YAML"),
    ],
)
def test_a_wrong_table_names_its_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(LedgerConfigError, match=key):
        table(tmp_path, text)
