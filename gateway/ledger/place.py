"""Where the ledger lives: a URL that an operator gave, or a file of this user's own that nobody else may read."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from gateway.ledger.errors import LedgerConfigError

FILE = "ledger.db"
OFF = "off"
_POSTGRES = ("postgres", "postgresql", "postgresql+psycopg")


def state_dir(environ: Mapping[str, str]) -> Path:
    """KVGATE_STATE_DIR, else XDG_STATE_HOME/kvgate, else ~/.local/state/kvgate: what must not be lost."""
    if own := environ.get("KVGATE_STATE_DIR"):
        return Path(own).expanduser().absolute()
    xdg = environ.get("XDG_STATE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    base = Path(xdg) if os.path.isabs(xdg) else Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return base / "kvgate"


def ledger_url(stated: str | None, environ: Mapping[str, str]) -> URL | None:
    """The ledger's URL; None: it is off.

    Args:
        stated: `off`, a path, `sqlite:///PATH` or `postgresql://USER@HOST/NAME`; None: KVGATE_LEDGER, else the
            file in the user's state folder.

    Raises:
        LedgerConfigError: it is none of these.
    """
    wanted = stated or environ.get("KVGATE_LEDGER") or str(state_dir(environ) / FILE)
    if wanted == OFF:
        return None
    if "://" not in wanted:
        return URL.create("sqlite", database=str(Path(wanted).expanduser().absolute()))
    try:
        url = make_url(wanted)
    except (ArgumentError, ValueError):
        # Not quoted: there may be a password in it.
        raise LedgerConfigError(f"the ledger's URL cannot be read; {_FORMS}") from None
    if url.drivername in _POSTGRES:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername != "sqlite":
        raise LedgerConfigError(f"the ledger cannot be kept in {url.drivername!r:.40}; {_FORMS}")
    if url.database in (None, "", ":memory:"):
        raise LedgerConfigError(
            "a ledger in memory would be gone with the process: name a file, sqlite:///PATH"
        )
    return url


_FORMS = "use off, a path, sqlite:///PATH or postgresql://USER@HOST/NAME"


def private_file(path: Path) -> None:
    """Make the file with 0600, in a folder which is made with 0700 if it is not there.

    SQLite gives its log files the mode of the database.

    Raises:
        LedgerConfigError: it cannot be made or written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(path.resolve())
    except OSError as error:
        raise LedgerConfigError(
            f"the ledger cannot be kept in {path}: {error.strerror}; name another place with --ledger"
        ) from error


def _make(path: Path) -> None:
    """Make the file, or see that it can be written, without opening one that is there.

    Closing a file takes all POSIX locks on it from the whole process. SQLite would then go on without its own, and the
    next other process to close the ledger would delete the log that is still written to.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
