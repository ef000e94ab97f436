"""The cases, those from public bug reports and our own, hold one by one, and nothing in them is harmed."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

_CASES = Path(__file__).parent / "data" / "cases"
_FILES = ("cases_open.jsonl", "cases_own.jsonl")
_ROWS = [
    json.loads(line) for name in _FILES for line in (_CASES / name).read_text("utf-8").split("\n") if line
]


def _checker() -> Any:
    spec = importlib.util.spec_from_file_location("check_canon", _CASES / "check_canon.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_check = _checker()


@pytest.mark.parametrize("row", _ROWS, ids=[f"{row['id']}-{row['kind']}" for row in _ROWS])
def test_the_case_holds(row: dict[str, Any]) -> None:
    assert _check.check_row(row) == []


def test_the_checker_sees_harm() -> None:
    row = {"a": {"messages": [{"role": "system", "content": "A. \nB."}]}, "expect": [{"check": "no_edit"}]}
    assert [name for name, _ in _check.check_row(row)] == ["no_edit"]
