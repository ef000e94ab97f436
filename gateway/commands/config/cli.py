"""`kvgate config ...`"""

import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.refuse import refuse

config = typer.Typer(help="The configuration file.", no_args_is_help=True)

_FILE = typer.Argument(help="A YAML file.", show_default="the environment alone")


@config.command("check")
def check(
    file: Annotated[Path | None, _FILE] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Say what is wrong with a configuration, key by key. No engine is contacted."""
    from gateway.commands.config import check as command

    if not command.run(file, os.environ, as_json=json):
        raise typer.Exit(1)


@config.command("show")
def show(
    file: Annotated[Path | None, _FILE] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of YAML.")] = False,
) -> None:
    """The configuration that counts: file, environment and defaults together, without any secret."""
    from gateway.commands.config import show as command
    from gateway.config.errors import ConfigError

    try:
        print(command.shown(file, os.environ, as_json=json), end="")
    except ConfigError as error:
        refuse(str(error))


@config.command("schema")
def schema(
    _json: Annotated[bool, typer.Option("--json", help="It always is; as with other commands.")] = False,
) -> None:
    """The JSON schema of the file, for editors and charts."""
    from gateway.config.schema import schema_text

    print(schema_text(), end="")
