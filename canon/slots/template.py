"""What lines of one origin have in common: their words, with a gap where they differ."""

from collections.abc import Sequence

GAP = (
    "\N{OPEN BOX}"  # stands for any one word; a word of a prompt that is this sign makes its line no template
)
LONGEST = 300  # characters of a line
MOST_WORDS = 40

Words = tuple[str, ...]


def words_of(line: str) -> Words | None:
    """The words of a line that may come from a template; None: it is empty, too long, or has none to hold on to."""
    if len(line) > LONGEST:
        return None
    words = tuple(line.split())
    return words if 2 <= len(words) <= MOST_WORDS and GAP not in words else None


def similarity(template: Sequence[str], words: Sequence[str]) -> float:
    """The share of places that agree, of lines with as many words. A gap agrees with nothing."""
    return sum(a == b for a, b in zip(template, words, strict=True)) / len(words)


def merged(template: Words, words: Sequence[str]) -> Words:
    return tuple(a if a == b else GAP for a, b in zip(template, words, strict=True))


def fits(template: Words, words: Words) -> bool:
    return len(template) == len(words) and all(a in (b, GAP) for a, b in zip(template, words, strict=True))


def is_labelled_value(template: Words) -> bool:
    """Whether all that differs is a value at the line's end, behind a label: `Build channel: ␣`."""
    if GAP not in template:
        return False
    first = template.index(GAP)
    label = template[:first]
    return bool(label) and label[-1].endswith((":", "：", "=")) and set(template[first:]) == {GAP}
