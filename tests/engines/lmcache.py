"""LMCache's server for vLLM, in tests and for the recorder."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engines.running import EngineCommand, end, engine_python, free_port, vllm, wait_until_ready

CHUNK = 256  # tokens that LMCache keeps as one


def lmcache() -> Path:
    return engine_python("vllm", "KVGATE_VLLM_PYTHON").with_name("lmcache")


@contextmanager
def lmcache_server(folder: Path) -> Iterator[int]:
    """LMCache's server on the loopback, with its second level in a folder; its port."""
    port, http = free_port(), free_port()
    second = json.dumps({"type": "fs", "base_path": str(folder / "kv")})
    args = ["server", "--host", "127.0.0.1", "--port", str(port), "--http-host", "127.0.0.1"]
    args += ["--http-port", str(http), "--l1-size-gb", "1", "--chunk-size", str(CHUNK)]
    args += ["--eviction-policy", "LRU"]
    args += ["--supported-transfer-mode", "engine_driven", "--l2-adapter", second]
    log = folder / "lmcache.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(lmcache()), *args],
            env=os.environ | {"PYTHONHASHSEED": "0", "LMCACHE_DISABLE_BANNER": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until_ready("LMCache", process, f"http://127.0.0.1:{http}", log, "/healthcheck")
        yield port
    finally:
        end(process)


def connector(port: int) -> str:
    return json.dumps({
        "kv_connector": "LMCacheMPConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port},
    })  # fmt: skip


def with_lmcache(port: int) -> EngineCommand:
    """vLLM that keeps its prefixes in the server at `port`, too."""
    flags = ("--enable-prompt-tokens-details", "--kv-transfer-config", connector(port))
    return vllm(*flags, environ={"PYTHONHASHSEED": "0"})
