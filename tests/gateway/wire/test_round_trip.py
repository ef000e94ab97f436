"""A body is written again only where that loses nothing."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.round_trip import round_trip_loss


def loss(raw: str) -> str | None:
    return round_trip_loss(raw.encode(), orjson.loads(raw))


@pytest.mark.parametrize(
    "number", ["1E2", "1e2", "-0", "-0.0e0", "1.50", "123456789012345678901234567890", "0.1e-7", "1.0E+2"]
)
def test_numbers_that_would_be_spelled_in_another_way_are_a_loss(number: str) -> None:
    assert number[:40] in str(loss(f'{{"a": [{{"b": {number}}}]}}'))
    assert loss(f'{{"a": "{number}", "{number}": 1}}') is None


@pytest.mark.parametrize("number", ["0", "1", "-1", "1.0", "0.1", "-0.0", "18446744073709551615", "1e-7"])
def test_numbers_in_their_shortest_form_are_none(number: str) -> None:
    assert loss(f'{{"a": {number}}}') is None


def test_a_key_that_stands_twice_is_a_loss() -> None:
    assert loss('{"a": {"b": 1, "b" : 1}}') == "an object has a key twice"
    assert loss('{"a": [{"b": 1}, {"b": 1}], "b": "\\"b\\":"}') is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\\\":1é", max_size=4), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(
    st.dictionaries(st.text('ab\\":1é'), json_values, max_size=4), st.sampled_from([0, orjson.OPT_INDENT_2])
)
def test_what_orjson_wrote_is_written_again_without_loss(body: dict[str, object], options: int) -> None:
    assert round_trip_loss(orjson.dumps(body, option=options), body) is None


def test_time_grows_with_the_text_even_where_it_is_all_escapes() -> None:
    raw = b'{"a": "' + rb"\\" * 2_000_000 + b'"}'
    assert round_trip_loss(raw, {"a": ""}) is None
