"""Numbers and files in messages read as people say them."""

from pathlib import Path

import pytest

from gateway.commands.wording import counted, unreadable


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12_345, "12,345 rows")]
)
def test_only_one_is_singular(count: int, said: str) -> None:
    assert counted(count, "row") == said


def test_an_unreadable_file_is_named_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none") as raised:
        (tmp_path / "none").read_bytes()
    assert unreadable(raised.value) == f"{tmp_path / 'none'} cannot be read: No such file or directory"


def test_an_error_without_a_file_keeps_its_text() -> None:
    assert unreadable(EOFError("it ends early")) == "it ends early"
