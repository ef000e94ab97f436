"""A stage speaks at once, keeps speaking, and stops."""

import threading
import time

import pytest

from engine_adapters.embedded.models.progress import stage


def test_a_stage_speaks_at_once_and_again_while_it_lasts() -> None:
    lines: list[str] = []
    again = threading.Event()

    def progress(line: str) -> None:
        lines.append(line)
        if len(lines) == 3:
            again.set()

    with stage(progress, "working", detail=lambda: "2 of 3", every_s=0.01):
        assert lines[0] == "working"
        assert again.wait(120)
    assert lines[1].startswith("working (2 of 3, ")


def test_a_stage_is_silent_after_it_ended_with_an_error() -> None:
    lines: list[str] = []
    with pytest.raises(KeyError), stage(lines.append, "working", every_s=0.01):
        raise KeyError
    said = len(lines)
    time.sleep(0.05)
    assert len(lines) == said
