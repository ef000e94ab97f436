"""`kvgate serve --config FILE`."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from gateway.commands.serve.where import Where
from gateway.config.assemble import Assembly, assembled
from gateway.config.build import ledger_of, load_of, otel_of, prompts_of, settings_of, shared_of
from gateway.config.errors import ConfigError
from gateway.config.load import load_config
from gateway.config.model import Config
from gateway.ledger.books import LedgerBooks
from gateway.ledger.writer import WriterSettings
from gateway.logs import configure_logs
from gateway.reload.last_good import LastGood
from gateway.reload.reloader import Reloader
from gateway.tenants.authenticator import OPEN
from gateway.workers.launch import Parts, Serving, run

_BESIDE = frozenset(
    {"config", "workers", "seat", "host", "port", "drain_delay", "grace", "json", "allow_no_keys"}
)  # options that may stand beside a file

_KEPT = "configuration.json"  # in the server's folder


class OptionsTwiceError(Exception):
    """Options of the command line that belong into the file."""


def serve_config(file: Path | None, where: Where, given: Collection[str], environ: Mapping[str, str]) -> int:
    """Serve until a signal; the exit status.

    `file` None: the environment says everything. `given`: names of the options that stand on the command line.

    Raises:
        ConfigError, OptionsTwiceError, LedgerError, ListenError: before anything is loaded or contacted.
    """
    _check_options(given)
    kept = None if where.seat is None else LastGood(Path(where.seat.plan.folder) / _KEPT)
    config, refused = _newest(file, environ, kept)
    otel = otel_of(config, environ)
    admin = None if config.admin is None else config.admin.options(environ)
    # A part of a server makes this only where it serves; a server says what is wrong before anything is started.
    first = assembled(config, environ) if where.seat is None else None
    configure_logs(json=where.json)
    capture = None if config.capture is None else config.capture.settings()
    parts = Parts(
        replace(where.options(config.server), admin=admin),
        replace(settings_of(config), otel=otel),
        load_of(config, environ),
        prompts_of(config, environ),
        lambda: _serving(file, environ, first or assembled(config, environ), kept, refused),
        lambda leads: LedgerBooks(
            ledger_of(config),
            environ,
            config.ledger.keep,
            capture,
            leads=leads,
            writing=WriterSettings(queue_rows=config.ledger.queue_rows),
        ),
        OPEN if first is None else first.configured.tenants,
        shared_of(config, environ),
    )
    return run(parts, where.workers(config.server), where.seat)


def _check_options(given: Collection[str]) -> None:
    others = sorted(set(given) - _BESIDE)
    if others:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise OptionsTwiceError(f"{names}: with --config this stands in the file")


def _newest(
    file: Path | None, environ: Mapping[str, str], kept: LastGood | None
) -> tuple[Config, tuple[str, ...]]:
    """The newest configuration that can be used, and what is wrong with a newer one.

    A process of a server that is started again goes on with what its siblings have.
    """
    try:
        return load_config(file, environ), ()
    except ConfigError as error:
        older = None if kept is None else kept.load()
        if older is None:
            raise
        return older, error.messages


def _serving(
    file: Path | None,
    environ: Mapping[str, str],
    first: Assembly,
    kept: LastGood | None,
    refused: tuple[str, ...],
) -> Serving:
    reloader = Reloader(file, environ, first, kept)
    if refused:
        reloader.begins_with_older(refused)
    elif kept is not None:
        kept.keep(first.config)
    return Serving(first.configured, reloader)
