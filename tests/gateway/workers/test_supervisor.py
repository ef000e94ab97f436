"""The parent of a server's processes, with real ones that only live, die and listen."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.process.listener import ListenError, bound, listen
from tests.processes import lives
from tests.waiting import PATIENCE_S, wait_until

LONG = PATIENCE_S


class Server:
    """One parent with its children."""

    def __init__(self, folder: Path, workers: int, engine: str) -> None:
        self.folder = folder
        self.sockets = Path(tempfile.mkdtemp())  # short, as the path of a socket must be
        command = [sys.executable, "-m", "tests.gateway.workers.supervised", "parent", str(folder)]
        self.parent = subprocess.Popen(
            [*command, str(workers), engine],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(self.sockets)},
        )

    def ready(self) -> dict[str, Any]:
        assert self.parent.stdout is not None
        line: dict[str, Any] = json.loads(self.parent.stdout.readline())
        return line

    def notes(self, what: str = "") -> list[str]:
        file = self.folder / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split(" ", 1)[1] for line in lines if what in line]

    def pids(self, name: str = "") -> list[int]:
        return [int(line.rsplit(" ", 1)[1]) for line in self.notes(" began ") if name in line]

    def has(self, count: int, what: str) -> None:
        wait_until(lambda: len(self.notes(what)) >= count, f"{count} x {what}", LONG)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.parent.send_signal(number)
        _, errors = self.parent.communicate(timeout=LONG)
        return self.parent.returncode, errors


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def run(workers: int = 2, engine: str = "engine") -> Server:
        servers.append(Server(tmp_path, workers, engine))
        return servers[-1]

    yield run
    for server in servers:
        server.parent.kill()
        server.parent.communicate()
        wait_until(lambda: not any(map(lives, server.pids())), "no process is left", LONG)  # noqa: B023
        shutil.rmtree(server.sockets)


def whom(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), LONG) as connection:
        return connection.recv(100).decode()


def test_one_line_says_that_all_are_ready(start: Start) -> None:
    server = start()
    line = server.ready()
    assert line["ready"] is True
    assert line["model"] == "worker-0"
    began = sorted(note.split()[0] for note in server.notes(" began "))
    assert began == ["engine", "state", "worker-0", "worker-1"]
    status, errors = server.end()
    assert status == 0
    assert errors.count("ready on") == 1


def test_what_a_worker_alone_knows_is_said_by_the_parent_before_all_are_ready(start: Start) -> None:
    server = start()
    server.ready()
    status, errors = server.end()
    assert status == 0
    assert errors.count("] worker-0 knows it\n") == errors.count("] worker-1 knows it\n") == 1
    assert errors.index("worker-0 knows it") < errors.index("ready on")


def test_connections_are_spread_over_all_workers(start: Start) -> None:
    server = start(3, "none")
    port = int(server.ready()["base_url"].rsplit(":", 1)[1].split("/")[0])
    counts = Counter(whom(port) for _ in range(300))
    assert len(counts) == 3
    assert min(counts.values()) > 50  # below it by chance: once in 10 million times


def test_workers_end_before_what_they_use(start: Start) -> None:
    server = start()
    server.ready()
    status, _ = server.end()
    assert status == 0
    ends = [note.split()[0] for note in server.notes(" ends")]
    assert sorted(ends[:2]) == ["worker-0", "worker-1"]
    assert sorted(ends[2:]) == ["engine", "state"]


def test_a_killed_worker_is_started_again_and_others_stay(start: Start) -> None:
    server = start()
    server.ready()
    (first,) = server.pids("worker-0")
    (other,) = server.pids("worker-1")
    os.kill(first, signal.SIGKILL)
    server.has(2, "worker-0 began")
    assert lives(other)
    status, errors = server.end()
    assert status == 0
    assert "A PROCESS HAS ENDED BY ITSELF" in errors
    assert len(server.pids("worker-1")) == 1


@pytest.mark.parametrize("name", ["state", "engine"])
def test_what_workers_use_is_started_again_as_well(start: Start, name: str) -> None:
    server = start()
    server.ready()
    os.kill(server.pids(name)[0], signal.SIGKILL)
    server.has(2, f"{name} began")
    assert server.end()[0] == 0


@pytest.mark.parametrize("name", ["state", "engine", "worker-0"])
def test_a_process_that_keeps_ending_ends_the_server(start: Start, name: str) -> None:
    server = start(1)
    server.ready()
    (server.folder / f"{name}.fails").touch()
    os.kill(server.pids(name)[0], signal.SIGKILL)
    _, errors = server.parent.communicate(timeout=LONG)
    assert server.parent.returncode == 1
    assert f"{name.replace('-', ' ')} has ended 4 times in a row" in errors
    assert len(server.pids(name)) == 4
    assert not any(map(lives, server.pids()))


def test_a_worker_that_keeps_ending_is_tried_again_while_others_serve(start: Start) -> None:
    server = start(2, "none")
    server.ready()
    (server.folder / "worker-1.fails").touch()
    os.kill(server.pids("worker-1")[0], signal.SIGKILL)
    server.has(7, "worker-1 began")
    assert lives(server.pids("worker-0")[0])
    (server.folder / "worker-0.fails").touch()
    os.kill(server.pids("worker-0")[0], signal.SIGKILL)
    server.parent.communicate(timeout=LONG)
    assert server.parent.returncode == 1


def test_a_process_that_does_not_even_start_ends_the_server_at_once(start: Start, tmp_path: Path) -> None:
    (tmp_path / "engine.fails").touch()
    server = start()
    _, errors = server.parent.communicate(timeout=LONG)
    assert server.parent.returncode == 1
    assert "engine did not start (exit status 7)" in errors
    assert len(server.pids("engine")) == 1
    assert not any(map(lives, server.pids()))


def test_when_the_parent_is_killed_nothing_is_left(start: Start) -> None:
    server = start()
    server.ready()
    (folder,) = server.sockets.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    server.parent.kill()
    server.parent.wait(LONG)
    wait_until(lambda: not any(map(lives, server.pids())), "no process is left", LONG)
    assert len(server.pids()) == 4
    assert not folder.exists()


def test_a_reload_is_passed_on_to_workers_alone_and_ends_nobody(start: Start) -> None:
    server = start()
    server.ready()
    server.parent.send_signal(signal.SIGHUP)
    server.has(2, "heard SIGHUP")
    assert sorted(note.split()[0] for note in server.notes("SIGHUP")) == ["worker-0", "worker-1"]
    assert server.end()[0] == 0
    assert len(server.pids()) == 4


def test_a_second_signal_is_passed_on(start: Start) -> None:
    server = start()
    (server.folder / "worker-0.stays").touch()
    server.ready()
    server.parent.terminate()
    server.has(1, "worker-0 heard SIGTERM")
    server.has(1, "worker-1 ends")
    (server.folder / "worker-0.stays").unlink()
    server.parent.send_signal(signal.SIGINT)
    server.has(1, "worker-0 heard SIGINT")
    _, errors = server.parent.communicate(timeout=LONG)
    assert server.parent.returncode == 0, errors


def test_a_signal_during_the_start_ends_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "worker-1.slow").touch()
    server = start()
    server.has(1, " began ")
    status, errors = server.end()
    assert status == 0
    assert "ready on" not in errors
    assert not any(map(lives, server.pids()))


def test_two_servers_do_not_share_a_port() -> None:
    with listen("127.0.0.1", 0, shared=True) as first:
        port = first.getsockname()[1]
        with pytest.raises(ListenError, match="in use"):
            bound("127.0.0.1", port)
        with pytest.raises(ListenError, match="in use"):
            listen("127.0.0.1", port)
        listen("127.0.0.1", port, shared=True).close()
