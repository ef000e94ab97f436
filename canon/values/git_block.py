"""Blocks that print the state of a repository."""

from collections.abc import Callable, Sequence

from canon.values.git import BLOCK, OPENING, SNAPSHOT, STATUS_LINE
from canon.values.items import item_of

_KINDS = frozenset(("branch", "revision", "user"))


def mark_git_blocks(lines: Sequence[str], free: Callable[[int], bool]) -> list[int]:
    """The lines of such blocks. One begins with its title and has only lines that git prints, in one or more
    paragraphs; at the first other line it is over."""
    marked: list[int] = []
    at = 0
    while at < len(lines):
        stop = _end(lines, free, at) if free(at) and OPENING.match(lines[at]) else at
        marked += range(at, stop)
        at = max(stop, at + 1)
    return marked


def _end(lines: Sequence[str], free: Callable[[int], bool], start: int) -> int:
    rest = lines[start].partition(":")[2].strip(" \t*_")
    if rest and not (SNAPSHOT.match(rest) or STATUS_LINE.match(rest)):
        return start
    end, at, titled = start + 1, start + 1, False
    while at < len(lines) and free(at):
        line = lines[at]
        if not line.strip():
            titled = False
            at += 1
            continue
        first = at > 0 and not lines[at - 1].strip()  # the first line of a further paragraph needs a title
        if BLOCK.match(line):
            titled = True
        elif not (STATUS_LINE.match(line) and (titled or not first)) and not _is_item(line):
            break
        end = at = at + 1
    return end if end > start + 1 or rest else start


def _is_item(line: str) -> bool:
    item = item_of(line)
    return item is not None and item.whole and item.kind in _KINDS
