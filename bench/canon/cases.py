"""The cases of the test data, by the checker that comes with them."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_DATA = Path(__file__).parents[2] / "tests" / "canon" / "data" / "cases"


@dataclass(frozen=True, slots=True)
class Held:
    """How many rows held, and how many checks found lost or altered text."""

    hold: int
    rows: int
    harm: int


def run_cases(folder: Path = _DATA) -> Held | None:
    """None where the test data is not there, as in an installed package."""
    checker, cases = folder / "check_canon.py", folder / "cases_open.jsonl"
    if not checker.is_file() or not cases.is_file():
        return None
    command = [sys.executable, str(checker), str(cases), "--json"]
    run = subprocess.run(
        command, capture_output=True, check=False, cwd=Path(__file__).parents[2], timeout=600
    )
    report = json.loads(run.stdout)
    return Held(report["hold"], report["total"], report["harm"])
