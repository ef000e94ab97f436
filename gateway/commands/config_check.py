"""`kvgate config check FILE`."""

import sys
from collections.abc import Mapping
from pathlib import Path

import orjson

from gateway.config.build import pools_of
from gateway.config.errors import ConfigError
from gateway.config.load import load_config


def run(file: Path, environ: Mapping[str, str], *, as_json: bool) -> bool:
    """Whether the file can be served from; says on stdout what it has, or on stderr what is wrong."""
    try:
        config = load_config(file)
        pools_of(config, environ)
    except ConfigError as error:
        return _tell(error.messages, [], as_json=as_json)
    return _tell((), [f"{each.name}: {each.kind}" for each in config.engines], as_json=as_json)


def _tell(errors: tuple[str, ...], engines: list[str], *, as_json: bool) -> bool:
    if as_json:
        answer = {"ok": not errors, "errors": errors, "engines": engines}
        print(orjson.dumps(answer).decode())
        return not errors
    for message in errors:
        print(f"Error: {message}", file=sys.stderr)
    for line in engines:
        print(line)
    return not errors
