"""`kvgate ledger prune` and `kvgate ledger export` on the command line."""

import os
from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

ledger = typer.Typer(help="The reuse ledger: one row a request.", no_args_is_help=True)

Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="A path, sqlite:///PATH or postgresql://USER@HOST/NAME.",
        show_default="KVGATE_LEDGER, else this user's own",
    ),
]


class ExportFormat(StrEnum):
    """Forms a ledger is taken out in."""

    csv = "csv"
    parquet = "parquet"


@ledger.command()
def prune(
    older_than: Annotated[str, typer.Option(help="Delete rows that arrived longer ago: 30d, 12h, 2w.")],
    ledger: Url = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Delete old rows, while gateways go on writing."""
    from gateway.commands.ledger import command

    _end(command.prune(ledger, older_than, os.environ, as_json=json))


@ledger.command()
def export(
    format: Annotated[ExportFormat, typer.Option(help="csv or parquet.")] = ExportFormat.csv,
    output: Annotated[str, typer.Option(help="The file to write; - is standard output.")] = "-",
    since: Annotated[str | None, typer.Option(help="Rows that arrived since then: 24h is a day ago.")] = None,
    until: Annotated[str | None, typer.Option(help="Rows that arrived before then.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Rows of one tenant.")] = None,
    model: Annotated[str | None, typer.Option(help="Rows of one model.")] = None,
    engine: Annotated[str | None, typer.Option(help="Rows of one engine.")] = None,
    ledger: Url = None,
    json: Annotated[bool, typer.Option("--json", help="With --output: one JSON object on stdout.")] = False,
) -> None:
    """Rows as CSV or Parquet. What is not known is empty there, or null, and never 0."""
    from gateway.commands.ledger import command

    choice = command.Choice(since, until, tenant, model, engine)
    _end(command.export(ledger, format.value, output, choice, os.environ, as_json=json))


def _end(code: int) -> None:
    if code:
        raise typer.Exit(code)
