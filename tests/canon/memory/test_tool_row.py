"""Tools already sent stay in front, in their order."""

import pytest

from canon.memory.tool_row import as_sent


@pytest.mark.parametrize(
    ("names", "before", "row"),
    [
        ("abc", [], "abc"),
        ("abc", ["cb"], "cba"),
        ("ab", ["cba"], "ba"),
        ("abc", ["cb", "xyz"], "cba"),  # what has nothing in common says nothing
        ("abc", ["ca", "xca"], "cab"),  # the fewer are gone, the better it fits
        ("abc", ["ca", "ac"], "acb"),  # else the latest
        ("abc", ["cba", "b"], "cba"),
    ],
)
def test_the_row_that_fits_best_counts(names: str, before: list[str], row: str) -> None:
    assert "".join(as_sent(list(names), before)) == row
