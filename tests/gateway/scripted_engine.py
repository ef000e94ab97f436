"""A real adapter whose engine is a script: it can fail, hang or speak at any point, and records how it was left."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canon.errors import TemplateError
from engine_adapters.base import (
    Capabilities,
    EngineAdapter,
    Event,
    Finished,
    GenerateRequest,
    Health,
    ReuseReport,
    ReuseStatus,
    TextDelta,
    Tier,
    TokenLogprob,
    Usage,
)
from tests.waiting import PATIENCE_S

MODEL = "scripted/model-1"
CONTEXT = 2000

Script = Callable[[GenerateRequest], AsyncIterator[Event]]


def reuse(reused: int | None = 0, status: ReuseStatus = "reported") -> ReuseReport:
    return ReuseReport(prompt=None, reused=reused, by_tier=None, source="scripted", status=status)


def usage_of(request: GenerateRequest, completion: int = 2, report: ReuseReport | None = None) -> Usage:
    return Usage(len(request.prompt_ids), completion, report or reuse())


def logprob(text: str, value: float = -0.5, top: Sequence[tuple[str, float]] = ()) -> TokenLogprob:
    others = tuple(TokenLogprob(1, name, name.encode(), p) for name, p in top)
    return TokenLogprob(0, text, text.encode(), value, others)


async def hello(request: GenerateRequest) -> AsyncIterator[Event]:
    """`Hello world` for every choice, interleaved, with log probabilities where they are asked for."""
    for text in ("Hello", " world"):
        for index in range(request.sampling.n):
            wanted = request.sampling.logprobs
            tokens = () if wanted is None else (logprob(text, -0.5, [(text, -0.5), ("x", -2.0)][:wanted]),)
            yield TextDelta(index, text, tokens)
            await asyncio.sleep(0)
    for index in range(request.sampling.n):
        yield Finished(index, "stop")
    yield usage_of(request, 2 * request.sampling.n)


def events(*fixed: Event) -> Script:
    """A script that says exactly `fixed`."""

    async def script(_: GenerateRequest) -> AsyncIterator[Event]:
        for event in fixed:
            yield event

    return script


class ScriptedEngine(EngineAdapter):
    """Runs `script` for every request. Lists are filled on the server's loop and read by tests."""

    def __init__(self, script: Script = hello, *, tool_parser: str | None = "hermes") -> None:
        self.script = script
        self.requests: list[GenerateRequest] = []
        self.running: set[str] = set()
        self.completed: list[str] = []
        self.cancelled: list[str] = []
        self.failed: list[str] = []
        self.events_given = 0
        self.ready = Health(True, "ready")
        self.closed = threading.Event()
        self._tool_parser = tool_parser

    def capabilities(self) -> Capabilities:
        return Capabilities(MODEL, CONTEXT, True, 16, True, tool_parser=self._tool_parser)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Event]:
        self.requests.append(request)
        self.running.add(request.request_id)
        outcome = self.cancelled
        try:
            async for event in self.script(request):
                self.events_given += 1
                yield event
            outcome = self.completed
        except Exception:
            outcome = self.failed
            raise
        finally:
            self.running.discard(request.request_id)
            outcome.append(request.request_id)

    async def tokenize(self, text: str) -> NDArray[np.int32]:
        return byte_ids(text)

    async def counters(self) -> Mapping[str, float]:
        return {}

    async def health(self) -> Health:
        return self.ready

    async def flush(self, tiers: Collection[Tier] | None = None) -> None:
        return None

    async def aclose(self) -> None:
        self.closed.set()


def byte_ids(text: str) -> NDArray[np.int32]:
    return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Rendered:
    ids: NDArray[np.int32]
    starts_in_reasoning: bool = False
    control_tokens: Mapping[str, int] = field(default_factory=dict)


def opened() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


@dataclass(slots=True)
class BytePrompts:
    """One token a byte, and a template of plain lines that takes no tool results."""

    seen: list[dict[str, Any]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    gate: threading.Event = field(default_factory=opened)  # what is rendered waits for it

    def chat_steps(self, *given: Any, **more: Any) -> Generator[None, None, Rendered]:
        yield
        return self.chat(*given, **more)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        scope: str = "",
        most: int | None = None,
    ) -> Rendered:
        self.threads.add(threading.current_thread().name)
        assert self.gate.wait(PATIENCE_S)
        for index, message in enumerate(messages):
            if message["role"] == "tool":
                raise TemplateError("this template has no tool role", f"messages[{index}].role")
        self.seen.append(
            {
                "tools": tools,
                "opens": add_generation_prompt,
                "continues": continue_final_message,
                "kwargs": dict(template_kwargs or {}),
            }
        )
        lines = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return Rendered(byte_ids(lines), bool((template_kwargs or {}).get("enable_thinking")))

    def encode(
        self, text: str, *, add_special_tokens: bool = True, scope: str = "", most: int | None = None
    ) -> NDArray[np.int32]:
        return byte_ids(text)

    def decode(self, ids: Sequence[int] | NDArray[np.int32], *, skip_special_tokens: bool = False) -> str:
        return bytes(int(i) for i in ids).decode("utf-8", "replace")
