"""What is missing is never passed over in silence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NEEDY = """
from tests.requirements import require

def test_that_needs_a_server():
    require("no_such_server", "pip install no-such-server")

def test_that_needs_nothing():
    require("json", "it is always there")
"""


def run_needy(folder: Path, require_all: str) -> tuple[int, str]:
    (folder / "test_needy.py").write_text(NEEDY)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(folder), str(folder)],
        env=os.environ | {"PYTHONPATH": os.getcwd(), "KVGATE_REQUIRE_ALL": require_all},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout


def test_a_missing_server_skips_and_is_listed_at_the_end(tmp_path: Path) -> None:
    status, said = run_needy(tmp_path, "")
    assert status == pytest.ExitCode.OK
    assert "1 passed, 1 skipped" in said
    assert "NOT TESTED" in said
    assert "1 skipped: no_such_server is missing: pip install no-such-server" in said


def test_where_everything_must_be_there_a_missing_server_fails(tmp_path: Path) -> None:
    status, said = run_needy(tmp_path, "1")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 1 passed" in said
    assert "no_such_server is missing: pip install no-such-server" in said
