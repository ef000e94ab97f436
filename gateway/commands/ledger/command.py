"""Deleting old rows, and taking rows out as a file."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sqlalchemy.exc import SQLAlchemyError

from gateway.commands.wording import counted
from gateway.ledger import (
    Database,
    LedgerError,
    LedgerReader,
    LedgerUnavailableError,
    Where,
    Window,
    open_database,
)
from gateway.ledger.database import reason
from gateway.ledger.errors import LedgerConfigError
from gateway.ledger.export import Format, export_csv, export_parquet
from gateway.ledger.retention import seconds

DONE, UNUSABLE = 0, 2  # exit codes
_STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows; spans are written as `30d` or `12h`, and count back from now."""

    since: str | None = None
    until: str | None = None
    tenant: str | None = None
    model: str | None = None
    engine: str | None = None

    def window(self, now: float) -> Window:
        """Raises LedgerConfigError for what is no span, or none that anything can lie in."""
        since, until = (None if text is None else now - seconds(text) for text in (self.since, self.until))
        if since is not None and until is not None and until <= since:
            raise LedgerConfigError(
                f"nothing lies between {self.since} ago and {self.until} ago: --until has to be the shorter span"
            )
        return Window(since, until)

    def where(self) -> Where:
        return Where(self.tenant, self.model, self.engine)


def prune(stated: str | None, older_than: str, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Delete what is older; the exit code."""
    deleted = 0
    try:
        with _opened(stated, environ) as database:
            for count in database.prune(time.time() - seconds(older_than)):
                deleted += count
                print(f"kvgate ledger: {counted(deleted, 'row')} deleted", file=sys.stderr, flush=True)
    except (LedgerError, SQLAlchemyError) as error:
        return _unusable(error)
    print(json.dumps({"deleted": deleted}) if as_json else f"{counted(deleted, 'row')} deleted")
    return DONE


def export(
    stated: str | None,
    kind: Format,
    output: str,
    choice: Choice,
    environ: Mapping[str, str],
    *,
    as_json: bool,
) -> int:
    """Write rows to a file, or to standard output; the exit code."""
    try:
        with _opened(stated, environ) as database:
            count = _export(LedgerReader(database), kind, output, choice)
    except BrokenPipeError:
        raise  # nobody reads any more, which is no fault of the ledger
    except OSError as error:
        why = error.strerror or type(error).__name__
        return _unusable(LedgerConfigError(f"{_named(output)} cannot be written: {why}"))
    except (LedgerError, SQLAlchemyError) as error:
        return _unusable(error)
    if output == _STDOUT:
        print(f"kvgate ledger: {counted(count, 'row')}", file=sys.stderr)
    else:
        print(
            json.dumps({"rows": count, "file": output}) if as_json else f"{counted(count, 'row')} in {output}"
        )
    return DONE


@contextlib.contextmanager
def _opened(stated: str | None, environ: Mapping[str, str]) -> Iterator[Database]:
    database = open_database(stated, environ)
    try:
        yield database
    finally:
        database.close()


def _export(reader: LedgerReader, kind: Format, output: str, choice: Choice) -> int:
    window, where = choice.window(time.time()), choice.where()
    if output == _STDOUT:
        if kind == "csv":
            return export_csv(reader, sys.stdout, window, where)
        if sys.stdout.isatty():
            raise LedgerConfigError("Parquet is nothing for a terminal: name a file with --output")
        return export_parquet(reader, sys.stdout.buffer, window, where)
    with _whole_file(Path(output)) as file:
        if kind == "parquet":
            return export_parquet(reader, file, window, where)
        with open(file.fileno(), "w", encoding="utf-8", newline="", closefd=False) as text:
            return export_csv(reader, text, window, where)


@contextlib.contextmanager
def _whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file which nobody else may read, and which is there only when it is complete."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _named(output: str) -> str:
    return "standard output" if output == _STDOUT else output


def _unusable(error: Exception) -> int:
    if isinstance(error, SQLAlchemyError):
        error = LedgerUnavailableError(f"the ledger cannot be used: {reason(error)}")
    print(f"kvgate ledger: {error}", file=sys.stderr)
    return UNUSABLE
