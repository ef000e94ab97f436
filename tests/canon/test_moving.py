import pytest

from canon.moving import Cut, without


def left(text: str) -> str:
    """What is left of a text whose lines with an `x` leave."""
    cuts, at = [], 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        if "x" in bare:
            cuts.append(Cut(at, at + len(bare), "value"))
        at += len(line)
    return without(text, cuts)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x\na", "a"),
        ("x\n\na", "a"),
        ("x1\nx2\n\n\na", "a"),
        ("a\nx", "a"),
        ("a\n\nx\n", "a"),
        ("a\nx\nb", "a\nb"),
        ("a\n\nx\n\nb", "a\n\nb"),
        ("a\n\nx\nb", "a\n\nb"),
        ("a\nx\n\nb", "a\n\nb"),
        ("a\n\nx1\n\nx2\n\nb", "a\n\nb"),
        ("a\r\n\r\nx\r\n\r\nb", "a\r\n\r\nb"),
        ("a\n \nx\n\t\nb", "a\n \nb"),
        ("x", ""),
        ("x1\n\nx2", ""),
        ("a  \nx\n  b", "a  \n  b"),
    ],
)
def test_paragraphs_stay_apart_by_what_stood_between_them(before: str, after: str):
    assert left(before) == after
