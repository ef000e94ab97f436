"""Whoever reads a command's output may leave: it ends without a word, and with a code that is no verdict."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import URL

from gateway.commands.broken_pipe import NOBODY_READS
from gateway.ledger import Database
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from gateway.process.telling import tell_line
from tests.gateway.ledger.rows import row

HERE = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of more rows than a buffer holds, a body, and a configuration."""
    folder = tmp_path_factory.mktemp("pipes")
    database = Database(URL.create("sqlite", database=str(folder / "ledger.db")))
    database.write(Batch("t", 1, [encoded(row(number)) for number in range(500)]))
    database.close()
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    (folder / "body.json").write_text(json.dumps(body))
    (folder / "kvgate.yaml").write_text("engines: [{name: a, kind: llama_cpp, url: 'http://127.0.0.1:9'}]\n")
    return folder


def unread(folder: Path, command: str, closed: str = "stdout") -> tuple[int, str]:
    """The exit code of a command whose output nobody reads, and what came on the other of both."""
    reading, writing = os.pipe()
    os.close(reading)
    other = "stderr" if closed == "stdout" else "stdout"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(writing, "wb") as nowhere:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *command.split()],
            cwd=folder,
            env=environ | {"PYTHONPATH": str(HERE)},
            timeout=300,
            check=False,
            **{closed: nowhere, other: subprocess.PIPE},  # type: ignore[call-overload]
        )
    return done.returncode, (done.stderr if closed == "stdout" else done.stdout).decode()


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--version",  # so little that it waits in a buffer until the end
        "ledger export --ledger ledger.db",
        "ledger export --ledger ledger.db --format parquet",
        "audit --ledger ledger.db",
        "audit --ledger ledger.db --json",
        "canon body.json --json",
        "config show kvgate.yaml",
    ],
)
def test_a_command_whose_reader_has_gone_ends_without_a_word(folder: Path, command: str) -> None:
    if "parquet" in command:
        pytest.importorskip("pyarrow")
    assert unread(folder, command) == (NOBODY_READS, "")


def test_so_it_does_where_nobody_reads_its_progress(folder: Path) -> None:
    code, said = unread(folder, "ledger export --ledger ledger.db", closed="stderr")
    assert code == NOBODY_READS
    assert said.count("\n") == 501  # the rows were complete


def test_a_file_that_cannot_be_written_is_told_as_ever(folder: Path) -> None:
    command = [sys.executable, "-m", "gateway", "ledger", "export", "--ledger", "ledger.db"]
    done = subprocess.run(
        [*command, "--output", "no/such/folder.csv"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "No such file" in done.stderr


def test_a_server_goes_on_when_nobody_reads_what_it_says() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nowhere:
        tell_line("listening", nowhere)
        with pytest.raises(BrokenPipeError):
            print("listening", file=nowhere, flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
