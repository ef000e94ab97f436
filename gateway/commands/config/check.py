"""`kvgate config check FILE`."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import orjson

from gateway.config.at_start import checks_at_start
from gateway.config.build import authenticator_of, otel_of, pool_of, shared_of
from gateway.config.errors import ConfigError
from gateway.config.extras import need
from gateway.config.load import load_config
from gateway.config.model import Config
from gateway.config.secret_ref import secrets_in
from gateway.config.unread import unread


def run(file: Path | None, environ: Mapping[str, str], *, as_json: bool) -> bool:
    """Whether it can be served from; says on stdout what it has, or on stderr what is wrong."""
    try:
        config = load_config(file, environ)
    except ConfigError as error:
        return _tell(error.messages, as_json=as_json)
    found = dict.fromkeys(message for look in checks(config, environ) for message in _messages(look))
    engines = [f"{each.name}: {each.kind}" for each in config.engines]
    warnings = [*unread(config), *_messages(partial(_check_sent, config, environ))]
    return _tell(tuple(found), engines, warnings, as_json=as_json)


def checks(config: Config, environ: Mapping[str, str]) -> Iterator[Callable[[], object]]:
    """Everything that is looked at beyond the file, such as secrets and packages; each raises ConfigError."""
    for path, secret in secrets_in(config):
        yield partial(secret.read, path, environ)
    for place, engine in config.remotes:
        yield partial(pool_of, engine, f"engines[{place}]", environ)
    yield partial(authenticator_of, config, environ)
    yield partial(shared_of, config, environ)
    if config.admin is not None:
        yield partial(config.admin.options, environ)
    yield partial(otel_of, config, environ)
    yield from checks_at_start(config, environ)


def _check_sent(config: Config, environ: Mapping[str, str]) -> None:
    """What a server starts without: the environment may ask all that runs in a cluster for OpenTelemetry."""
    if config.otlp_endpoint is None and otel_of(config, environ) is not None:
        need("OTEL_* of the environment: nothing is sent", "otel")


def _messages(look: Callable[[], object]) -> tuple[str, ...]:
    try:
        look()
    except ConfigError as error:
        return error.messages
    return ()


def _tell(
    errors: tuple[str, ...], engines: Sequence[str] = (), warnings: Sequence[str] = (), *, as_json: bool
) -> bool:
    if errors:
        engines = warnings = ()
    if as_json:
        answer = {"ok": not errors, "errors": errors, "warnings": warnings, "engines": engines}
        print(orjson.dumps(answer).decode())
        return not errors
    for message in errors:
        print(f"Error: {message}", file=sys.stderr)
    for message in warnings:
        print(f"Warning: {message}", file=sys.stderr)
    for line in engines:
        print(line)
    return not errors
