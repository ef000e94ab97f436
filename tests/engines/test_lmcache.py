"""What vLLM gets from LMCache's server is a tier of its own: `store`."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine_adapters.remote.vllm import VllmEngine
from tests.engines.asking import ask, prompt_ids
from tests.engines.running import end, engine_python, free_port, running, vllm, wait_until_ready
from tests.requirements import require_that

pytestmark = pytest.mark.engines

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


async def test_a_restarted_vllm_gets_prefixes_from_the_store(smollm2_folder: Path, tmp_path: Path) -> None:
    require_that(lmcache().exists(), "LMCache is not in place: tests/engines/lmcache.sh puts it beside vLLM")
    prompt = prompt_ids(60, 1022)
    with lmcache_server(tmp_path) as port:
        flags = ("--enable-prompt-tokens-details", "--kv-transfer-config", connector(port))
        command = vllm(*flags, environ={"PYTHONHASHSEED": "0"})
        with running(command, smollm2_folder, tmp_path / "first.log") as url:
            engine = VllmEngine("first", url, probe=False)
            assert (await ask(engine, prompt)).account.reuse.reused == 0
            await engine.aclose()
        with running(command, smollm2_folder, tmp_path / "second.log") as url:
            engine = VllmEngine("second", url, probe=False)
            before = await engine.reuse_counters()
            report = (await ask(engine, prompt)).account.reuse
            after = await engine.reuse_counters()
            await engine.aclose()
    assert report.reused == 3 * CHUNK
    assert after.reused - before.reused == report.reused
    assert after.by_tier["store"] - before.by_tier["store"] == report.reused
    assert after.by_tier["device"] == before.by_tier["device"]
