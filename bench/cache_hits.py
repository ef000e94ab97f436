"""TTFT of a long prompt by the tier that has it, over the embedded engine."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from bench.measure import median_of
from bench.own_engine import OwnEngine
from bench.prompts import PromptMaker
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig

PREFIX = 7488  # tokens
_KV_BYTES = 1 << 30
_HOST_BYTES = 1 << 30
_DISK_BYTES = 4 << 30
_SEED = 29

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HitTtft:
    """Seconds to the first token: cold through Transformers alone, and ours by tier."""

    transformers_cold: float
    device: float
    host: float
    disk: float  # in a fresh process


def run(folder: Path, rounds: int, progress: Progress) -> HitTtft:
    """Warm a prefix, then ask for it again from each tier. `folder` takes the disk tier's files."""
    from bench.peers.transformers_peer import TransformersPeer

    adapter = EmbeddedAdapter.load(_config(folder), lambda _: None)
    own, prompts = OwnEngine(adapter), PromptMaker(adapter.runner.vocab_size, _SEED)
    prefix = prompts.tokens(PREFIX)
    peer = TransformersPeer(adapter.folder.path)
    cold = median_of(lambda: peer.prefill(prompts.question(prefix)), 1 if rounds < 3 else 2, progress, "cold")
    own.ttft(prompts.question(prefix))
    own.ttft(prompts.question(prefix))  # its second use writes it through
    settle(adapter)
    device = median_of(lambda: own.ttft(prompts.question(prefix)), rounds, progress, "device hit")

    def from_host() -> float:
        own.flush()
        return own.ttft(prompts.question(prefix))

    host = median_of(from_host, rounds, progress, "host hit")
    own.close()
    disk = median_of(lambda: _fresh_process(folder), rounds, progress, "disk hit, fresh process")
    return HitTtft(cold, device, host, disk)


def settle(adapter: EmbeddedAdapter) -> None:
    """Wait until every copy has arrived."""
    while adapter.tiers is not None and not adapter.tiers.idle:
        time.sleep(0.01)


def _config(folder: Path) -> EmbeddedConfig:
    return EmbeddedConfig(
        kv_bytes=_KV_BYTES,
        host_cache_bytes=_HOST_BYTES,
        disk_cache_dir=folder,
        disk_cache_bytes=_DISK_BYTES,
    )


def _fresh_process(folder: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "bench.cache_hits", str(folder)], capture_output=True, check=True, text=True
    )
    result = orjson.loads(done.stdout.splitlines()[-1])
    if result["reused"] != PREFIX:
        raise RuntimeError(f"after the restart {result['reused']} of {PREFIX} tokens were reused")
    return float(result["ttft"])


def _measure_after_restart(folder: Path) -> None:
    """In the fresh process: one short request, so that everything is loaded, then the prompt."""
    adapter = EmbeddedAdapter.load(_config(folder), lambda _: None)
    own, prompts = OwnEngine(adapter), PromptMaker(adapter.runner.vocab_size, _SEED)
    prefix = prompts.tokens(PREFIX)
    own.ttft(np.arange(1000, 1064, dtype=np.int32))
    ttft, reused = own.ttft_and_reused(prompts.question(prefix))
    own.close()
    print(orjson.dumps({"ttft": ttft, "reused": reused}).decode())


if __name__ == "__main__":
    _measure_after_restart(Path(sys.argv[1]))
