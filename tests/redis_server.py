"""A real Redis of a test's own: its own folder, a free loopback port; it can be killed, and be started again."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.ports import free_port
from tests.requirements import require, require_that
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    import redis


@dataclass(slots=True)
class RedisServer:
    """One server, which keeps its port when it is started again. Nothing outlives it but with `keep`."""

    program: str
    folder: Path
    port: int
    keep: bool = False  # write every command to a file, so that a restart has all that was there
    password: str | None = None
    flags: tuple[str, ...] = ()  # more of them
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def started(
        cls, *, keep: bool = False, password: str | None = None, flags: tuple[str, ...] = ()
    ) -> Iterator["RedisServer"]:
        """A server that takes calls; skips the test, loudly, where there is none on this machine."""
        require("redis", "pip install 'kvgate[redis]'")
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        require_that(program is not None, "Redis is missing: apt-get install redis-server")
        assert program is not None
        folder = Path(tempfile.mkdtemp(prefix="kvgate-redis-"))
        server = cls(program, folder, free_port(), keep, password, flags)
        try:
            server.start()
            yield server
        finally:
            server.kill()
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> "redis.Redis":
        """To look inside."""
        import redis

        return redis.Redis(port=self.port, password=self.password)

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self.process is None
        options = {
            "bind": "127.0.0.1", "port": str(self.port), "dir": str(self.folder), "save": "", "loglevel": "warning",
            "appendonly": "yes" if self.keep else "no", "appendfsync": "always",
        }  # fmt: skip
        if self.password is not None:
            options["requirepass"] = self.password
        flags = [*self.flags] + [part for name, value in options.items() for part in (f"--{name}", value)]
        self.process = subprocess.Popen(
            [self.program, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self.process.poll() is None, "Redis ended at its start"
            assert time.monotonic() < deadline, "Redis does not answer"
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL: nothing is said, nothing is written any more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """It stays there, and does nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After `pause`."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it, and start it again at the same port."""
        self.kill()
        self.start()

    def flush(self) -> None:
        """Forget everything."""
        with self.client() as client:
            client.flushall()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) in (b"+PONG\r\n", b"-NOAUTH")
        except OSError:
            return False
