"""`kvgate serve` with SGLang in a process of its own, which is a stand-in here."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml

from tests.engine_adapters.sglang_process.test_adapter import STAND_IN


@contextmanager
def served(folder: Path, model: Path, **engine: object) -> Iterator[subprocess.Popen[str]]:
    file = folder / "kvgate.yaml"
    own = {"kind": "sglang_process", "python": sys.executable, "model": str(model)}
    file.write_text(yaml.safe_dump({"engines": [{**own, **engine}], "ledger": {"url": "off"}}))
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from gateway.cli import main; main()",
            "serve",
            "--config",
            str(file),
            "--port",
            "0",
            "--json",
        ],
        env=os.environ | {"PYTHONPATH": f"{os.getcwd()}:{STAND_IN}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_it_serves_completions_and_ends_the_engine_with_itself(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    model = tiny_model("qwen3")
    with served(tmp_path, model, served_model_name="m") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["model"] == "m"
        body = {"model": "m", "prompt": [7, 8, 9], "max_tokens": 3}
        answer = httpx.post(f"{ready['base_url']}/completions", json=body, timeout=300).json()
        assert answer["choices"][0]["text"] == " 7 8 9"
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 3
        (child,) = _children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) in (0, -signal.SIGTERM)
        assert not Path(f"/proc/{child}").exists()


def test_one_that_does_not_start_ends_the_server_with_what_it_said(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    with served(tmp_path, tiny_model("qwen3"), arguments={"fail": "no such weights"}) as process:
        _, said = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "no such weights" in said


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
