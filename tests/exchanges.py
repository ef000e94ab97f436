"""Recorded HTTP exchanges with real engines: a proxy on the loopback that records, and a server that replays."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

FOLDER = Path(__file__).parent / "data" / "exchanges"

# Of the long answers only what adapters read is kept.
_METRICS = ("cache", "prompt_tokens_total", "prompt_tokens_by_source", "num_requests_running")
_SCHEMAS = ("ChatCompletionRequest", "CompletionRequest")
_SERVER_INFO = (
    "version", "page_size", "context_length", "enable_cache_report", "enable_metrics", "kv_events_config",
    "disable_radix_cache", "enable_hierarchical_cache", "hicache_storage_backend", "served_model_name",
    "max_total_num_tokens", "max_req_input_len", "incremental_streaming_output", "completion_template",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer. Chunks are the body as it arrived; bytes that are no UTF-8 are surrogates."""

    method: str
    path: str  # query included
    body: Any  # parsed JSON; None: no body
    status: int
    content_type: str
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """What one run of an engine was asked and answered, by the fact that asked."""

    engine: str
    version: str
    command: tuple[str, ...]  # how the engine was started, without paths
    facts: dict[str, list[Exchange]]

    @classmethod
    def read(cls, name: str) -> "Recording":
        said = json.loads((FOLDER / f"{name}.json").read_text())
        facts = {
            fact: [Exchange(**{**each, "chunks": tuple(each["chunks"])}) for each in exchanges]
            for fact, exchanges in said["facts"].items()
        }
        return cls(said["engine"], said["version"], tuple(said["command"]), facts)

    def write(self, name: str) -> None:
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.json").write_text(_lines(asdict(self)))


class Replay:
    """Answers requests as they were answered once; each exchange once, equal requests in their order."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self._left = list(exchanges)

    async def __call__(self, request: Request) -> Response:
        asked = (request.method, _path(request), _parsed(await request.body()))
        if asked[2] is not None and "application/json" not in request.headers.get("content-type", ""):
            return PlainTextResponse("Only 'application/json' is allowed", 400)  # as vLLM answers
        for index, each in enumerate(self._left):
            if (each.method, each.path, each.body) == asked:
                del self._left[index]
                return StreamingResponse(_chunks(each), each.status, media_type=each.content_type)
        return PlainTextResponse(f"nothing was recorded for {asked}", 599)


class Recorder:
    """Passes requests on to an engine, and keeps what was said."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self.exchanges: list[Exchange] = []

    async def __call__(self, request: Request) -> Response:
        body = await request.body()
        client = httpx.AsyncClient(timeout=600, trust_env=False)
        sent = client.build_request(
            request.method,
            self._engine + _path(request),
            content=body,
            headers={"content-type": "application/json", "accept-encoding": "identity"},
        )
        answer = await client.send(sent, stream=True)
        content_type = answer.headers.get("content-type", "application/json")
        chunks: list[bytes] = []

        async def passed_on() -> AsyncIterator[bytes]:
            async for chunk in answer.aiter_raw():
                chunks.append(chunk)
                yield chunk
            kept = _shortened(request.url.path, chunks)
            self.exchanges.append(
                Exchange(
                    request.method,
                    _path(request),
                    _parsed(body),
                    answer.status_code,
                    content_type,
                    tuple(_text(chunk) for chunk in kept),
                )
            )
            await client.aclose()

        return StreamingResponse(passed_on(), answer.status_code, media_type=content_type)


@contextmanager
def served(handler: Replay | Recorder) -> Iterator[str]:
    """`handler` at an address of its own on the loopback, in a thread."""
    methods = ["GET", "POST"]
    app = Starlette(routes=[Route("/{path:path}", handler.__call__, methods=methods)])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)  # who comes before the server runs, waits
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=60)


def _lines(recording: dict[str, Any]) -> str:
    """One exchange a line, so that a new recording can be compared with the last."""
    facts = recording.pop("facts")
    head = json.dumps(recording)[:-1]
    told = [
        f"{json.dumps(fact)}: [\n" + ",\n".join(map(json.dumps, exchanges)) + "\n]"
        for fact, exchanges in facts.items()
    ]
    return f'{head}, "facts": {{\n' + ",\n".join(told) + "\n}}\n"


async def _chunks(exchange: Exchange) -> AsyncIterator[bytes]:
    for chunk in exchange.chunks:
        yield chunk.encode("utf-8", "surrogateescape")
        await asyncio.sleep(0)


def _text(chunk: bytes) -> str:
    """Without the recording machine's folders."""
    return chunk.decode("utf-8", "surrogateescape").replace(str(Path.home()), "~")


def _path(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _parsed(body: bytes) -> Any:
    return json.loads(body) if body else None


def _shortened(path: str, chunks: list[bytes]) -> list[bytes]:
    """The answer without what no adapter reads, where it is long."""
    whole = b"".join(chunks)
    if path == "/metrics":
        lines = whole.decode().splitlines(keepends=True)
        kept = [line for line in lines if any(word in line for word in _METRICS) and "_created" not in line]
        return ["".join(line for line in kept if not line.startswith("# HELP")).encode()]
    if path == "/openapi.json":
        return [json.dumps(_outline(json.loads(whole))).encode()]
    if path in ("/server_info", "/get_server_info") and whole.startswith(b"{"):
        said = json.loads(whole)
        return [json.dumps({key: said[key] for key in _SERVER_INFO if key in said}).encode()]
    return chunks


def _outline(api: dict[str, Any]) -> dict[str, Any]:
    schemas = api["components"]["schemas"]
    fields = {name: {"properties": {key: {} for key in schemas[name]["properties"]}} for name in _SCHEMAS}
    return {"paths": {path: {} for path in api["paths"]}, "components": {"schemas": fields}}
