"""`kvgate` as an install with given extras has it, in processes of its own."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.installed.closure import environment

_PATIENCE_S = 300.0  # a loaded machine takes its time; a hanging one fails


@dataclass
class Serving:
    """One server that takes requests; `lines` is what it said."""

    url: str = ""
    admin: str = ""
    lines: list[str] = field(default_factory=list)


class Installed:
    """Commands run in `folder`, which keeps what they write."""

    def __init__(self, extras: Iterable[str], folder: Path, *more: str) -> None:
        self.folder = folder
        hook = folder / "hook"
        hook.mkdir()
        self._environ = environment(extras, hook, *more) | {
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self._environ.pop("KVGATE_LEDGER", None)
        self._command = [sys.executable, "-m", "gateway"]

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [*self._command, *arguments],
            env=self._environ | environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        """`code` in its Python."""
        return subprocess.run(
            [sys.executable, "-c", code],
            env=self._environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    @contextmanager
    def serving(self, config: Path, environ: Mapping[str, str] | None = None) -> Iterator[Serving]:
        """`kvgate serve --config`, ready; it ends with the block, and in order."""
        process = subprocess.Popen(
            [*self._command, "serve", "--config", str(config), "--port", "0"],
            env=self._environ | dict(environ or {}),
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        served, ready = Serving(), threading.Event()

        def read() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                served.lines.append(line.rstrip())
                if found := re.search(r"admins are answered on (\S+)", line):
                    served.admin = found[1]
                if found := re.search(r"ready on (\S+)/v1", line):
                    served.url = found[1]
                    ready.set()
            ready.set()

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert ready.wait(_PATIENCE_S), served.lines
            assert served.url, served.lines
            yield served
        finally:
            process.terminate()
            status = process.wait(_PATIENCE_S)
            reader.join()
        assert status == 0, served.lines
        assert not [line for line in served.lines if "Traceback" in line or "No module named" in line]
