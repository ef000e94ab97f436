"""How a command says that it cannot do what was asked."""

import sys
from typing import NoReturn

import typer


def refuse(message: str) -> NoReturn:
    """`Error: ...` on stderr, and exit code 1."""
    print(f"Error: {message}", file=sys.stderr)
    raise typer.Exit(1)
