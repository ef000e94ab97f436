"""`kvgate serve` in a process of its own, and one behind another."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.tenants.keys import hash_of

KEYS = {
    "red": "kvg_red-0123456789abcdef",
    "blue": "kvg_blue-0123456789abcde",
    "navy": "kvg_navy-0123456789abcde",
    "edge": "kvg_edge-0123456789abcde",
}
ADMIN = "an admin key of thirty characters"
SALT = "a secret of some thirty-two bytes"
MODEL = "tiny"
ENVIRON = {"SALT": SALT, "ADMIN": ADMIN, "EDGE_KEY": KEYS["edge"]}
GROUPS = {"red": "red", "blue": "sea", "navy": "sea"}
TENANTS: list[dict[str, Any]] = [
    {"name": name, "group": group, "keys": [hash_of(KEYS[name])]} for name, group in GROUPS.items()
]
ADMINS = {"port": 0, "key": {"env": "ADMIN"}, "metrics": "here"}


class Process:
    """One serving process; ends with the test."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines: list[str] = []
        self.url = self.admin = ""
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(file), "--port", "0"]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **ENVIRON}
        )
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        assert self._ready.wait(120), self.lines
        assert self.url, self.lines

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            if found := re.search(r"admins are answered on (\S+)", line):
                self.admin = found[1]
            if found := re.search(r"ready on (\S+)", line):
                self.url = found[1]
                self._ready.set()
        self._ready.set()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def serving(file: Path, config: dict[str, Any]) -> Iterator[Process]:
    file.write_text(json.dumps(config))
    process = Process(file)
    try:
        yield process
    finally:
        process.end()


@dataclass(frozen=True, slots=True)
class Chain:
    """A gateway with tenants, and the kvgate behind it that runs the engine."""

    outer: Process
    inner: Process


def embedded(model: Path, folder: Path, **more: Any) -> dict[str, Any]:
    """The embedded engine over three tiers, of which device and host hold some 28,000 tokens each."""
    return {
        "kind": "embedded", "model": str(model), "served_model_name": MODEL, "kv_cache_gib": 0.02,
        "host_cache_gib": 0.02, "disk_cache_dir": str(folder / "disk"), "disk_cache_gib": 0.1,
    } | more  # fmt: skip


@contextmanager
def chain(engine: dict[str, Any], folder: Path, **of_outer: Any) -> Iterator[Chain]:
    """`of_outer`: further keys of the outer gateway's engine."""
    inside = {
        "engines": [engine],
        "ledger": {"url": str(folder / "inner.db")},
        "tenants": [{"name": "edge", "gateway": True, "keys": [hash_of(KEYS["edge"])]}],
        "admin": ADMINS,
    }
    with ExitStack() as stack:
        inner = stack.enter_context(serving(folder / "inner.yaml", inside))
        admin = {"port": int(inner.admin.rpartition(":")[2]), "key": {"env": "ADMIN"}}
        behind = {
            "name": "behind", "kind": "kvgate", "url": inner.url.removesuffix("/v1"),
            "key": {"env": "EDGE_KEY"}, "admin": admin, "models": [MODEL], **of_outer,
        }  # fmt: skip
        outside = {
            "engines": [behind],
            "ledger": {"url": str(folder / "outer.db")},
            "tenants": TENANTS,
            "salt_secret": {"env": "SALT"},
            "admin": ADMINS,
        }
        yield Chain(stack.enter_context(serving(folder / "outer.yaml", outside)), inner)
