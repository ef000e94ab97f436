"""The real thing: `kvgate serve` in a process of its own, the default model, the official SDK."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import openai
import pytest

READY_S = 300.0  # a loaded machine takes its time; a hanging one fails


@dataclass
class Serving:
    """One serving process."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)  # what it said on stderr

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=600)

    def async_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=600)


@contextmanager
def serving(*arguments: str) -> Iterator[Serving]:
    """`kvgate serve` with these arguments on a free port, ready; ended at the end."""
    command = [sys.executable, "-m", "gateway", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    served = Serving(process)
    ready = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            served.lines.append(line.rstrip())
            if found := re.search(r"ready on (\S+)", line):
                served.url = found[1]
                ready.set()
        ready.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        assert ready.wait(READY_S), served.lines
        assert served.url, served.lines
        yield served
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Iterator[Serving]:
    """The default model, with a pool that holds its whole context."""
    with serving("--kv-cache-gib", "1") as it:
        yield it


@pytest.fixture(scope="module")
def tiny_with_tools(tiny_model: Callable[[str], Path]) -> Iterator[Serving]:
    """A tiny random model behind a chat template that renders tools and thinking."""
    template = Path(__file__).parent.parent / "canon" / "data" / "hermes.jinja"
    with serving("--model", str(tiny_model("qwen3")), "--chat-template", str(template)) as it:
        yield it
