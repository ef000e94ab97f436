"""Starts heavy real engines for tests and for the recorder, on the loopback, and ends them."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.requirements import require_that

MODEL_NAME = "smollm2"
_READY_S = 900  # on two shared cores

_QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """How one engine is started; `{port}` and `{model}` are filled in."""

    name: str
    python: Path
    args: Sequence[str]
    script: str  # puts the engine in place
    environ: Mapping[str, str] = field(default_factory=dict)

    def require(self) -> None:
        """Skip loudly where the engine is not installed."""
        require_that(
            self.python.exists(), f"{self.name} is not in place: tests/engines/{self.script} puts it there"
        )


def engine_python(name: str, variable: str) -> Path:
    """The interpreter of an engine's own environment."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("KVGATE_CACHE_DIR") or Path(cache, "kvgate")
    return Path(os.environ.get(variable) or Path(cache, "engines", name, "bin", "python"))


def vllm(
    *flags: str, events: str | None = None, dev: bool = True, environ: Mapping[str, str] | None = None
) -> EngineCommand:
    args = ["-m", "vllm.entrypoints.cli.main", "serve", "{model}", "--host", "127.0.0.1", "--port", "{port}"]
    args += [
        "--served-model-name",
        MODEL_NAME,
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-model-len",
        "4096",
    ]
    if events is not None:
        args += ["--kv-events-config", events]
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SERVER_DEV_MODE": str(int(dev)), **(environ or {})}
    return EngineCommand("vLLM", engine_python("vllm", "KVGATE_VLLM_PYTHON"), [*args, *flags], "vllm.sh", own)


def sglang(*flags: str, events: str | None = None) -> EngineCommand:
    args = [
        "-m",
        "sglang.launch_server",
        "--model-path",
        "{model}",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
    ]
    args += ["--served-model-name", MODEL_NAME, *SGLANG_ON_A_CPU]
    if events is not None:
        args += ["--kv-events-config", events]
    python = engine_python("sglang", "KVGATE_SGLANG_SERVER_PYTHON")
    return EngineCommand("SGLang", python, [*args, *flags], "sglang.sh", {"SGLANG_USE_CPU_ENGINE": "1"})


SGLANG_ON_A_CPU = (
    "--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native", "--disable-overlap-schedule",
    "--mem-fraction-static", "0.2", "--max-total-tokens", "20000",
)  # fmt: skip


@contextmanager
def running(command: EngineCommand, model: Path, log: Path) -> Iterator[str]:
    """The engine's address once it takes requests; it and all it started have ended afterwards."""
    command.require()
    port = free_port()
    args = [arg.replace("{port}", str(port)).replace("{model}", str(model)) for arg in command.args]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(command.python), *args],
            env=os.environ | _QUIET | command.environ,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=log.parent,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(command.name, process, url, log)
        yield url
    finally:
        end(process)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until_ready(
    name: str, process: subprocess.Popen[bytes], url: str, log: Path, path: str = "/health"
) -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}{path}", timeout=10):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(1)
    raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')[-4000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole group to end, then make it."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
