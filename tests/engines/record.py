"""Records exchanges with real engines for `tests/data/exchanges`: `python -m tests.engines.record [NAME...]`.

Each engine is started with its flags and without them; every fact in `<engine>_facts.py` runs through a proxy that
keeps requests, answers with their chunks, and metrics before and after. A fact that does not hold stops the recording.
"""

import asyncio
import base64
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from engine_adapters.embedded.models import cache_dir, resolve_model
from engine_adapters.remote.http_engine import HttpEngine
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.remote.vllm import VllmEngine
from tests.engines import sglang_facts, sglang_native_facts, vllm_facts
from tests.engines.asking import ask, prompt_ids
from tests.engines.lmcache import lmcache_server, with_lmcache
from tests.engines.running import EngineCommand, running, sglang, vllm
from tests.exchanges import FOLDER, Exchange, Recorder, Recording, served

VLLM_FLAGS = ("--enable-prefix-caching", "--enable-prompt-tokens-details")
VLLM_BARE = ("--no-enable-prefix-caching",)
SGLANG_FLAGS = ("--enable-cache-report", "--enable-metrics")


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
        (*sglang_facts.FACTS, *sglang_native_facts.NATIVE_FACTS),
    ),
    Session(
        "sglang_bare",
        lambda _: sglang(),
        SGLangEngine,
        (*sglang_facts.BARE_FACTS, *sglang_native_facts.NATIVE_BARE_FACTS),
    ),
)


LMCACHE = "vllm_lmcache"
EVENTS = {"vllm_events": SESSIONS[0], "sglang_events": SESSIONS[2]}


def record_events(name: str, session: Session, model: Path) -> None:
    """What the engine publishes of its cache while it serves one prompt plain, once under a salt, and forgets both."""
    with tempfile.TemporaryDirectory() as folder:
        command = session.command(Path(folder))
        with running(command, model, Path(folder, "log")) as url:
            recorded = asyncio.run(_published(session, url, f"ipc://{folder}/events"))
    (FOLDER / f"{name}.json").write_text(json.dumps(recorded) + "\n")


async def _published(session: Session, url: str, endpoint: str) -> dict[str, Any]:
    engine = session.adapter("recorded", url)
    prompt, after = prompt_ids(40, 300), prompt_ids(41, 140)
    batches: list[dict[str, Any]] = []
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
        socket.connect(endpoint)
        socket.subscribe(b"kv")
        await asyncio.sleep(1)  # subscriptions travel
        await ask(engine, prompt)
        await ask(engine, prompt, salt="tenant a")
        await engine.flush()
        await ask(engine, after)  # vLLM tells of a flush with the next batch
        while await socket.poll(2000):
            _, number, payload = await socket.recv_multipart()
            seq = int.from_bytes(number, "big")
            batches.append({"seq": seq, "payload": base64.b64encode(payload).decode()})
    found = await engine.detect()
    await engine.aclose()
    return {
        "engine": session.name,
        "version": found.version,
        "block_size": found.block_size,
        "prompt": prompt,
        "batches": batches,
    }


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


def record_lmcache(model: Path) -> None:
    """A vLLM that was started anew, with what its predecessor left in LMCache's server."""
    session = Session(LMCACHE, lambda _: vllm(), VllmEngine, vllm_facts.STORE_FACTS)
    (fact,) = session.facts
    with tempfile.TemporaryDirectory() as folder, lmcache_server(Path(folder)) as port:
        command = with_lmcache(port)
        with running(command, model, Path(folder, "first.log")) as url:
            asyncio.run(_asked_once(url))
        with running(command, model, Path(folder, "second.log")) as url:
            exchanges = asyncio.run(_recorded(fact, session, url))
            version = asyncio.run(_version(session, url))
    flags = tuple(arg for arg in command.args if "{" not in arg)
    Recording(command.name, version, flags, {fact.__name__: exchanges}).write(LMCACHE)


async def _asked_once(url: str) -> None:
    engine = VllmEngine("first", url)
    await ask(engine, vllm_facts.KEPT)
    await engine.aclose()


def main(names: Sequence[str]) -> None:
    model = resolve_model(None, cache_dir=cache_dir(os.environ), progress=lambda _: None).path
    for session in SESSIONS:
        if session.name in names:
            record(session, model)
    for name, session in EVENTS.items():
        if name in names:
            record_events(name, session, model)
    if LMCACHE in names:
        record_lmcache(model)


if __name__ == "__main__":
    main(sys.argv[1:] or [*(session.name for session in SESSIONS), *EVENTS, LMCACHE])
