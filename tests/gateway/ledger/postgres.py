"""A real PostgreSQL: its own folder, a free loopback port, and never as root, which it refuses."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.ports import free_port
from tests.requirements import require_that

_USER = "kvgate"


@dataclass(slots=True)
class Postgres:
    """One running server."""

    folder: Path
    port: int
    binaries: Path

    @classmethod
    @contextmanager
    def started(cls) -> Iterator["Postgres"]:
        """A server that takes connections; skips the test, loudly, where there is none on this machine."""
        binaries = _binaries()
        require_that(binaries is not None, "PostgreSQL is missing: apt-get install postgresql")
        assert binaries is not None
        folder = Path(tempfile.mkdtemp(prefix="kvgate-pg-"))
        server = cls(folder / "data", free_port(), binaries)
        try:
            if os.geteuid() == 0:
                shutil.chown(folder, _owner())
            server._run(
                "initdb", "-D", str(server.folder), "-U", _USER, "-A", "trust", "-E", "UTF8", "--no-sync"
            )
            server.start()
            try:
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-p {self.port} -h 127.0.0.1 -k '' -c fsync=off -c max_connections=50"
        log = str(self.folder.parent / "log")
        self._run("pg_ctl", "-D", str(self.folder), "-w", "-t", "60", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """Stop it at once, without waiting for clients."""
        self._run("pg_ctl", "-D", str(self.folder), "-w", "-m", "immediate", "stop")

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{name}"

    def _dsn(self, name: str) -> str:
        return f"host=127.0.0.1 port={self.port} user={_USER} dbname={name}"

    def _run(self, program: str, *args: str) -> None:
        command = [str(self.binaries / program), *args]
        user = _owner() if os.geteuid() == 0 else None
        done = subprocess.run(
            command, user=user, cwd="/", env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, timeout=120,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stderr}"


def _owner() -> str:
    """Whose server it is where the tests run as root."""
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return "nobody"


def _binaries() -> Path | None:
    """The folder with `initdb`; Debian keeps it off the search path."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)
