"""A process of the bench that does not start says why."""

import sys
from pathlib import Path

import pytest

from bench.gateway.litellm_proxy import program
from bench.gateway.processes import PeerError, first_line, started


def test_a_child_that_ends_tells_its_last_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such thing')"]
    with (
        started(command, tmp_path / "x.log", None) as child,
        pytest.raises(PeerError, match="no such thing"),
    ):
        first_line(child, tmp_path / "x.log", 120)


def test_the_first_line_is_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-c", "import time; print('port 5'); time.sleep(60)"]
    with started(command, tmp_path / "x.log", None) as child:
        assert first_line(child, tmp_path / "x.log", 120) == "port 5"
    assert child.returncode is not None


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="nowhere"):
        program(None, {"KVGATE_LITELLM": str(tmp_path / "nowhere")}, print)
