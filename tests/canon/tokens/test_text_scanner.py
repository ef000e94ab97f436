"""The scanner finds what a tokenizer's added-token matching finds: leftmost, then longest."""

from hypothesis import given
from hypothesis import strategies as st

from canon.tokens.text_scanner import TextScanner

LETTERS = st.text("ab<|\n", max_size=5)


def naive(words: set[str], text: str) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(text):
        longest = max((len(word) for word in words if word and text.startswith(word, at)), default=0)
        if longest:
            found.append((at, at + longest))
        at += longest or 1
    return found


@given(st.sets(LETTERS, max_size=8), st.text("ab<|\n", max_size=30))
def test_it_finds_the_leftmost_and_then_the_longest(words: set[str], text: str) -> None:
    scanner = TextScanner(words)
    assert scanner.spans(text) == naive(words, text)
    assert scanner.found_in(text) == bool(naive(words, text))


def test_thousands_of_words_compile() -> None:
    scanner = TextScanner(f"<unused{i}>" for i in range(7000))
    assert scanner.spans("<unused6999><unused70000>") == [(0, 12)]
