"""How a command says that it cannot do what was asked."""

import sys
from typing import NoReturn

import typer


def refuse(message: str, code: int = 1) -> NoReturn:
    """`Error: ...` on stderr, and the exit code: another one than 1 where that is a verdict."""
    print(f"Error: {message}", file=sys.stderr)
    raise typer.Exit(code)
