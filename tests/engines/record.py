"""Records exchanges with real engines for `tests/data/exchanges`: `python -m tests.engines.record vllm sglang`.

Each engine is started with its flags and without them; every fact in `<engine>_facts.py` runs through a proxy that
keeps requests, answers with their chunks, and metrics before and after. A fact that does not hold stops the recording.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_adapters.embedded.models import cache_dir, resolve_model
from engine_adapters.remote.http_engine import HttpEngine
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.remote.vllm import VllmEngine
from tests.engines import sglang_facts, vllm_facts
from tests.engines.running import EngineCommand, running, sglang, vllm
from tests.exchanges import Exchange, Recorder, Recording, served

VLLM_FLAGS = ("--enable-prefix-caching", "--enable-prompt-tokens-details")
VLLM_BARE = ("--no-enable-prefix-caching",)
SGLANG_FLAGS = ("--enable-cache-report", "--enable-metrics")
SGLANG_BARE = ("--disable-radix-cache",)


@dataclass(frozen=True, slots=True)
class Session:
    """One start of one engine, and what is asked then."""

    name: str  # of the recording
    command: Callable[[Path], EngineCommand]  # given a folder for sockets
    adapter: Callable[[str, str], HttpEngine]
    facts: Sequence[Any]


def events_config(folder: Path) -> str:
    """Events over sockets in a folder: both engines bind those, and nobody outside can reach them."""
    return json.dumps({
        "enable_kv_cache_events": True, "publisher": "zmq", "topic": "kv",
        "endpoint": f"ipc://{folder}/events", "replay_endpoint": f"ipc://{folder}/replay",
    })  # fmt: skip


def sglang_events_config(folder: Path) -> str:
    config = json.loads(events_config(folder))
    del config["enable_kv_cache_events"]
    return json.dumps(config)


SESSIONS = (
    Session("vllm", lambda f: vllm(*VLLM_FLAGS, events=events_config(f)), VllmEngine, vllm_facts.FACTS),
    Session("vllm_bare", lambda _: vllm(*VLLM_BARE, dev=False), VllmEngine, vllm_facts.BARE_FACTS),
    Session(
        "sglang",
        lambda f: sglang(*SGLANG_FLAGS, events=sglang_events_config(f)),
        SGLangEngine,
        sglang_facts.FACTS,
    ),
    Session("sglang_bare", lambda _: sglang(*SGLANG_BARE), SGLangEngine, sglang_facts.BARE_FACTS),
)


def record(session: Session, model: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = session.command(Path(folder))
        with running(command, model, Path(folder, "log")) as url:
            facts: dict[str, list[Exchange]] = {}
            for fact in session.facts:
                print(f"{session.name}: {fact.__name__}", file=sys.stderr)
                facts[fact.__name__] = asyncio.run(_recorded(fact, session, url))
            version = asyncio.run(_version(session, url))
    flags = tuple(arg for arg in command.args if "{" not in arg)
    Recording(command.name, version, flags, facts).write(session.name)


async def _recorded(fact: Any, session: Session, url: str) -> list[Exchange]:
    recorder = Recorder(url)
    with served(recorder) as proxy:
        engine = session.adapter("recorded", proxy)
        try:
            await fact(engine)
        finally:
            await engine.aclose()
    return recorder.exchanges


async def _version(session: Session, url: str) -> str:
    engine = session.adapter("recorded", url)
    try:
        return (await engine.detect()).version or ""
    finally:
        await engine.aclose()


def main(names: Sequence[str]) -> None:
    model = resolve_model(None, cache_dir=cache_dir(os.environ), progress=lambda _: None).path
    for session in SESSIONS:
        if session.name in names:
            record(session, model)


if __name__ == "__main__":
    main(sys.argv[1:] or [session.name for session in SESSIONS])
