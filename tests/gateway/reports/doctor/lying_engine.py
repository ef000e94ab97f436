"""A small HTTP server that counts words as tokens, caches whole blocks of them, and can have any sickness."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

_HEAD = ["<system>", "be", "kind", "</system>", "<user>"]
_FOOT = ["</user>", "<assistant>"]


@dataclass
class LyingEngine:
    """What it does and what it says of it are two things."""

    block: int = 16
    owner: str = "vllm"
    caches: bool = True
    says: Literal["truth", "no zero", "null", "nothing", "zero", "prompt-1", "too much"] = "truth"
    has_usage: bool = True
    stream: Literal["same", "no usage", "no cached", "other", "refused"] = "same"
    salts: Literal["kept apart", "ignored", "refused"] = "kept apart"
    refuses_all: bool = False
    lists_models: bool = True
    seen: set[tuple[str, ...]] = field(default_factory=set)
    requests: int = 0
    a_word: int = 1  # tokens
    template: int = 0  # more tokens in front of a prompt
    word_seconds: float = 0.0  # that each word takes which is not reused, whatever is said of it
    prompt_tokens: int = 0  # that it was sent
    events: dict[str, Any] | None = None  # what it says of where it publishes KV events, as vLLM does
    publish: Callable[[int], None] | None = None  # called with the blocks that a prompt has stored
    limit: str = ""  # the only name of a limit that it takes; empty: any
    keys: set[str] = field(default_factory=set)
    counters: dict[str, int] = field(default_factory=dict)  # of its own; none: it publishes none

    def answer(self, body: dict[str, Any]) -> tuple[int, str, bytes]:
        self.requests += 1
        streams = body.get("stream", False)
        if self.limit and self.limit not in body:
            said = f"Unsupported parameter: 'max_tokens'. Use '{self.limit}' instead."
            return 400, "application/json", json.dumps({"error": {"message": said}}).encode()
        if (
            self.refuses_all
            or (streams and self.stream == "refused")
            or ("cache_salt" in body and self.salts == "refused")
        ):
            return 400, "application/json", b'{"error": {"message": "no", "type": "invalid_request_error"}}'
        usage = self._usage(body, streams)
        if not streams:
            choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "length"}
            whole: dict[str, Any] = {"object": "chat.completion", "choices": [choice]}
            return 200, "application/json", json.dumps(whole | ({"usage": usage} if usage else {})).encode()
        events: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "length"}]}
        ]
        if usage and self.stream != "no usage" and body.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": usage})
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        return 200, "text/event-stream", text.encode()

    def _usage(self, body: dict[str, Any], streams: bool) -> dict[str, Any] | None:
        said = (word for message in body["messages"] for word in message["content"].split())
        pieces = (f"{word}.{piece}" for word in said for piece in range(self.a_word))
        words = [*_HEAD, *(["<more>"] * self.template), *pieces, *_FOOT]
        self.prompt_tokens += len(words)
        salt = body.get("cache_salt", "") if self.salts == "kept apart" else ""
        reused = self._reused([salt, *words])
        time.sleep(self.word_seconds * (len(words) - reused))
        if not self.has_usage:
            return None
        usage: dict[str, Any] = {"prompt_tokens": len(words), "completion_tokens": 1}
        says = "nothing" if streams and self.stream == "no cached" else self.says
        if says != "nothing" and not (says == "no zero" and reused == 0):
            said = {
                "null": None,
                "zero": 0,
                "prompt-1": len(words) - 1,
                "too much": len(words) + 5,
            }
            cached = said.get(says, reused)
            if streams and self.stream == "other":
                cached = 1
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    def _reused(self, salted: list[str]) -> int:
        """The salt stands in front of the first block and is no token."""
        if not self.caches:
            return 0
        blocks = [tuple(salted[: 1 + end]) for end in range(self.block, len(salted), self.block)]
        hits = next((i for i, block in enumerate(blocks) if block not in self.seen), len(blocks))
        self.seen.update(blocks)
        if self.publish is not None and hits < len(blocks):
            self.publish(len(blocks) - hits)
        whole = hits * self.block
        tokens = len(salted) - 1
        return whole if whole < tokens else whole - self.block


@contextmanager
def served(engine: LyingEngine) -> Iterator[str]:
    """The engine at a URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/metrics" and engine.counters:
                text = "".join(f"{name} {count}\n" for name, count in engine.counters.items())
                self._send(200, "text/plain", text.encode())
                return
            if self.path == "/kv_event_sources" and engine.events is not None:
                self._send(200, "application/json", json.dumps(engine.events).encode())
                return
            listed = self.path == "/v1/models" and engine.lists_models
            models = {"data": [{"id": "m", "owned_by": engine.owner}]} if listed else {"error": "none"}
            self._send(200 if listed else 404, "application/json", json.dumps(models).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            engine.keys.add(self.headers.get("authorization", ""))
            known = self.path == "/v1/chat/completions"
            self._send(*(engine.answer(body) if known else (404, "application/json", b"{}")))

        def _send(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
