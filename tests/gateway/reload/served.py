"""`kvgate serve --config FILE` as a process, with a file that tests write."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from gateway.config.effective import digest
from gateway.config.load import load_config
from tests.waiting import PATIENCE_S, wait_until


@dataclass(slots=True)
class ServedFile:
    """A process, its file, and what it said so far on stderr, a parsed JSON object a log line."""

    file: Path
    child: subprocess.Popen[str]
    environ: dict[str, str]
    reader: threading.Thread = field(default_factory=threading.Thread)
    url: str = ""
    lines: list[dict[str, Any]] = field(default_factory=list)
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=PATIENCE_S))

    def write(self, text: str) -> None:
        """As editors and Kubernetes do: another file takes the place."""
        new = self.file.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.file)

    def said(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if message in line.get("message", "")]

    def wait_for(self, message: str, times: int = 1) -> dict[str, Any]:
        wait_until(lambda: len(self.said(message)) >= times, f"{message!r}: {self.lines}")
        return self.said(message)[-1]

    def reload(self, text: str) -> dict[str, Any]:
        """Write `text` and wait until it counts. The file before may be loaded once more, meanwhile."""
        before = len(self.said("loaded again"))
        self.write(text)
        wanted = digest(load_config(self.file, self.environ))
        self.child.send_signal(signal.SIGHUP)

        def loaded() -> list[dict[str, Any]]:
            return [line for line in self.said("loaded again")[before:] if line["config"] == wanted]

        wait_until(loaded, f"it is loaded: {self.lines}")
        return loaded()[0]

    def ends(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and wait; behind it all is read that was said. The exit status."""
        self.child.send_signal(number)
        status = self.child.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        return status

    def metrics(self) -> dict[str, float]:
        families = text_string_to_metric_families(self.http.get(f"{self.url}/metrics").text)
        return {sample.name: sample.value for family in families for sample in family.samples}

    def samples(self, name: str, **labels: str) -> float:
        """The sum of those with these labels."""
        families = text_string_to_metric_families(self.http.get(f"{self.url}/metrics").text)
        found = (sample for family in families for sample in family.samples if sample.name == name)
        return sum(sample.value for sample in found if labels.items() <= sample.labels.items())

    def post(self, path: str = "/v1/chat/completions", **body: Any) -> httpx.Response:
        return self.http.post(self.url + path, json=body)


@contextmanager
def served_file(file: Path, text: str, *arguments: str, **environ: str) -> Iterator[ServedFile]:
    file.write_text(text)
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gateway",
            "serve",
            "--config",
            str(file),
            "--port",
            "0",
            "--json",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    process = ServedFile(file, child, {**os.environ, **environ})

    def read() -> None:
        assert child.stderr is not None
        for line in child.stderr:
            process.lines.append(json.loads(line) if line.startswith("{") else {"message": line})

    process.reader = threading.Thread(target=read, daemon=True)
    process.reader.start()
    try:
        assert child.stdout is not None
        process.url = json.loads(child.stdout.readline())["base_url"].removesuffix("/v1")
        yield process
    finally:
        child.kill()
        child.wait()
        process.reader.join(PATIENCE_S)
        process.http.close()
