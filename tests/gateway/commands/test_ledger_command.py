"""`kvgate ledger` as people run it."""

import json
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy.engine import URL

from gateway.ledger import Database, LedgerReader
from gateway.ledger.database import Batch
from gateway.ledger.encoding import encoded
from tests.gateway.ledger.rows import row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    database = Database(URL.create("sqlite", database=str(path)))
    now = time.time()
    rows = [row(n, f"t{n % 2}", now - age) for n, age in enumerate([90_000.0, 80_000.0, 10.0, 5.0])]
    database.write(Batch("t", 1, [encoded(each) for each in rows]))
    database.close()
    return path


def kvgate(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "ledger", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_prune_deletes_what_is_older_and_says_how_much(path: Path) -> None:
    done = kvgate("prune", "--older-than", "1d", "--ledger", str(path), "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"deleted": 1})
    reader = LedgerReader(Database(URL.create("sqlite", database=str(path))))
    assert [each.id for each in reader.rows()] == ["1", "2", "3"]


def test_export_writes_csv_to_standard_output(path: Path) -> None:
    done = kvgate("export", "--since", "23h", "--tenant", "t1", "--ledger", str(path))
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert [line.split(",")[0] for line in lines] == ["id", "1", "3"]


def test_export_writes_a_whole_private_file(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    done = kvgate("export", "--format", "parquet", "--output", str(out), "--ledger", str(path), "--json")
    assert json.loads(done.stdout) == {"rows": 4, "file": str(out)}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".rows*"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["prune", "--older-than", "soon"], "30d"),
        (["export", "--since", "yesterday"], "30d"),
        (["export", "--output", "/nowhere/at/all.csv"], "No such file"),
    ],
)
def test_what_cannot_be_done_is_said_and_exits_2(path: Path, args: list[str], said: str) -> None:
    done = kvgate(*args, "--ledger", str(path))
    assert done.returncode == 2
    assert said in done.stderr


def test_one_row_is_no_rows(path: Path) -> None:
    done = kvgate("prune", "--older-than", "1d", "--ledger", str(path))
    assert done.stdout == "1 row deleted\n"


def test_a_ledger_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = kvgate("export", "--ledger", str(tmp_path / "none.db"))
    assert done.returncode == 2
    assert "there is no ledger" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("output", "why"), [("", "Is a directory"), ("no/such/rows.csv", "No such file or directory")]
)
def test_a_file_that_cannot_be_written_is_named_as_it_was_given(
    path: Path, tmp_path: Path, output: str, why: str
) -> None:
    target = tmp_path / output
    done = kvgate("export", "--ledger", str(path), "--output", str(target))
    assert (done.returncode, done.stderr) == (2, f"kvgate ledger: {target} cannot be written: {why}\n")
    assert {each.name for each in tmp_path.iterdir()} <= {"ledger.db", "ledger.db-shm", "ledger.db-wal"}


def test_a_span_that_ends_before_it_begins_is_refused_and_not_empty(path: Path) -> None:
    done = kvgate("export", "--ledger", str(path), "--since", "1h", "--until", "2h")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--until has to be the shorter span" in done.stderr
    assert kvgate("export", "--ledger", str(path), "--since", "2h", "--until", "1h").returncode == 0
