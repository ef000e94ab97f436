"""llama.cpp's own server with the default model, in a process of its own, on a loopback port."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.ports import free_port

CONTEXT = 2048  # tokens, of each of the slots
SLOTS = 2

_SERVER = """
import sys, xllamacpp
model, port, context, slots, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_ctx = context * slots
params.n_parallel = slots
params.endpoint_metrics = bool(folder)
params.endpoint_slots = True
params.slot_save_path = folder
params.embedding = False
for cpu in (params.cpuparams, params.cpuparams_batch):
    cpu.n_threads = 1
    cpu.poll = 0
server = xllamacpp.Server(params)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class LlamaCppServer:
    url: str


@contextmanager
def llama_cpp_server(gguf: Path, folder: Path | None) -> Iterator[LlamaCppServer]:
    """Up for the block. `folder` lets slots be saved and erased, and counters be read; None: neither is there."""
    port = free_port()
    slots = "" if folder is None else f"{folder}/"
    arguments = [str(gguf), str(port), str(CONTEXT), str(SLOTS), slots]
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(process, url)
        yield LlamaCppServer(url)
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "llama.cpp's server ended at its start"
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError("llama.cpp's server did not come up")
