"""What a server says of itself when it is ready: all that it serves."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.process.front import OneProcess
from tests.gateway.relay.fake_engine import fake_engine

HERE = Path(__file__).parents[3]


def said(models: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, object]]:
    asyncio.run(OneProcess("127.0.0.1", 0, json=True).ready("http://h:1", models))
    output = capsys.readouterr()
    return output.err.strip().partition("] ")[2], json.loads(output.out)


def test_one_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    line, told = said(["a"], capsys)
    assert line == "ready on http://h:1/v1 model=a"
    assert (told["model"], told["models"]) == ("a", ["a"])


def test_several_are_all_named(capsys: pytest.CaptureFixture[str]) -> None:
    line, told = said(["a", "b"], capsys)
    assert line == "ready on http://h:1/v1 models=a,b"
    assert (told["model"], told["models"]) == ("a", ["a", "b"])


def test_of_many_the_line_counts_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"m{number}" for number in range(30)]
    line, told = said(names, capsys)
    assert line.endswith("models=m0,m1,m2,m3,m4,m5,m6,m7 and 22 more")
    assert told["models"] == names


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_gateway_names_what_all_its_engines_serve(tmp_path: Path, workers: str) -> None:
    with fake_engine() as one, fake_engine() as other:
        one.models, other.models = ["a", "b"], ["c"]
        file = tmp_path / "kvgate.yaml"
        engines = [{"name": name, "kind": "openai", "url": e.url} for name, e in (("x", one), ("y", other))]
        file.write_text(json.dumps({"engines": engines, "ledger": {"url": "off"}}))
        serve = [sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", "0", "--json"]
        child = subprocess.Popen(
            [*serve, "--workers", workers],
            env=os.environ | {"PYTHONPATH": str(HERE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["models"] == ["a", "b", "c"]
        finally:
            child.terminate()
            child.communicate(timeout=120)
