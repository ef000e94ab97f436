import pytest
from hypothesis import given
from msgspec.structs import replace

from gateway.ledger import LedgerRow
from gateway.ledger.encoding import decoded, encoded
from tests.gateway.ledger.rows import any_row, row


@given(any_row)
def test_what_is_encoded_comes_back_as_it_was(given_row: LedgerRow) -> None:
    assert decoded(encoded(given_row)) == given_row


@pytest.mark.parametrize("count", [2**31, -(2**31), 10**30])
def test_a_number_that_can_be_no_count_is_not_known(count: int) -> None:
    assert decoded(encoded(replace(row(1), reused=count))).reused is None


@pytest.mark.parametrize("time", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_none_is_not_known(time: float) -> None:
    assert decoded(encoded(replace(row(1), first_token=time))).first_token is None


def test_texts_that_no_database_takes_are_mended_and_cut() -> None:
    kept = decoded(encoded(replace(row(1), model="a\0b\ud800c" + "x" * 500)))
    assert kept.model.startswith("ab?c")
    assert len(kept.model) <= 200
