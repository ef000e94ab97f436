"""Ends a command whose reader has gone, as `head` does: without a word, and with the code that shells give to it."""

import os
import sys
from collections.abc import Callable
from typing import TextIO

NOBODY_READS = 141  # 128 + SIGPIPE


def ending_quietly(command: Callable[[], object]) -> None:
    """Run `command` as a whole program, which ends in SystemExit.

    Typer makes exit code 1 of a broken pipe, which stands for "no" here, and what is left in buffers it leaves to the
    interpreter, which complains of it.
    """
    try:
        command()
    except BrokenPipeError:
        broken, code = True, None
    except SystemExit as end:
        broken, code = isinstance(end.__context__, BrokenPipeError), end.code
    else:
        broken, code = False, None
    unread = _cannot_be_written()
    sys.exit(NOBODY_READS if broken or unread else code)


def _cannot_be_written() -> bool:
    """Write what buffers hold; of streams that nobody reads it goes nowhere."""
    broken = [_is_broken(stream) for stream in (sys.__stdout__, sys.__stderr__) if stream is not None]
    return any(broken)


def _is_broken(stream: TextIO) -> bool:
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    return False
