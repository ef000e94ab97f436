"""llama.cpp's own server on the same GGUF, in a process of its own (`pip install --no-deps xllamacpp`)."""

import http.client
import importlib.util
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SERVER = """
import sys, time, xllamacpp
model, port, threads, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_ctx = context
params.n_parallel = 1
for cpu in (params.cpuparams, params.cpuparams_batch):
    cpu.n_threads = threads
    cpu.poll = 0
server = xllamacpp.Server(params)
print("listening", flush=True)
sys.stdin.read()
"""


def installed() -> bool:
    """Whether the peer can be measured here."""
    return importlib.util.find_spec("xllamacpp") is not None


class LlamaCppPeer:
    """Started by `with`; ended with it."""

    name = "llama.cpp"

    def __init__(self, gguf: Path, threads: int, context: int) -> None:
        self._port = _free_port()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(gguf), str(self._port), str(threads), str(context)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> "LlamaCppPeer":
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError("llama.cpp's server ended at its start; is the GGUF readable?")
            if self._healthy():
                return self
            time.sleep(0.2)
        self._process.kill()
        raise RuntimeError("llama.cpp's server did not come up in two minutes")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def ttft(self, tokens: NDArray[np.int32]) -> float:
        """Seconds from sending `tokens` to the first generated one."""
        body = {
            "prompt": tokens.tolist(),
            "n_predict": 2,
            "stream": True,
            "cache_prompt": True,
            "temperature": 0,
        }
        return stream_ttft(self._port, "/completion", json.dumps(body).encode())

    def _healthy(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False


def stream_ttft(port: int, path: str, body: bytes) -> float:
    """Seconds until the first `data:` line of a stream that carries text; the rest is read, too."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)
    started = time.perf_counter()
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{path} answered {response.status}: {response.read(500)!r}")
    first: float | None = None
    while line := response.readline():
        if first is None and line.startswith(b"data:") and _carries_token(line):
            first = time.perf_counter() - started
    connection.close()
    if first is None:
        raise RuntimeError(f"{path} ended without a token")
    return first


def _carries_token(line: bytes) -> bool:
    """Whether an SSE line is more than a role announcement or the end."""
    payload = line[5:].strip()
    if payload == b"[DONE]":
        return False
    event = json.loads(payload)
    if "choices" not in event:  # llama.cpp's own form
        return "content" in event
    if not event["choices"]:
        return False
    choice = event["choices"][0]
    delta = choice.get("delta", choice)
    return bool(delta.get("content") or delta.get("text") or choice.get("finish_reason"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
