"""What a serving process tells whoever started it."""

from contextlib import suppress
from typing import TextIO


def tell_line(line: str, file: TextIO) -> None:
    """Write one line at once. Whoever reads may have gone, as `head` does: a server goes on all the same."""
    with suppress(BrokenPipeError):
        print(line, file=file, flush=True)
