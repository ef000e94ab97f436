"""The fuzzer's corpus holds, and so does each of its bodies with pieces swapped, cut and doubled at random."""

import random
from pathlib import Path

import pytest

from tests.canon.fuzz.oracle import check, request_of

_CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())
_ROUNDS = 30
_PIECES = [
    *(
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b"\xef\xbb\xbf",
        b"```",
        b'"',
        b"\\u00e9",
        b"\\ud800",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
    ),
    *(
        b"null",
        b"1e400",
        b"-0",
        b'"type"',
        b'"properties"',
        b"<env>",
        b"</env>",
        b"\x00",
        b"\xff",
        b"The text is:\\n",
    ),
]


def mutated(data: bytes, dice: random.Random) -> bytes:
    for _ in range(dice.randint(1, 4)):
        start = dice.randint(0, len(data))
        stop = min(len(data), start + dice.choice((0, 0, 1, 3, 20)))
        again = data[start : start + dice.choice((0, 1, 30))] * dice.choice((0, 1, 2))
        data = data[:start] + dice.choice((*_PIECES, again)) + data[stop:]
    return data


@pytest.mark.parametrize("path", _CORPUS, ids=lambda path: path.name)
def test_the_corpus_and_what_is_near_it_hold(path: Path) -> None:
    data = path.read_bytes()
    check(request_of(data))
    dice = random.Random(path.name)
    for _ in range(_ROUNDS):
        check(request_of(mutated(data, dice)))
