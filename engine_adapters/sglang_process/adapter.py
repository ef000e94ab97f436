"""SGLang in a process of its own behind the interface that all engines share."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from engine_adapters.base import Capabilities, EngineAdapter, Event, GenerateRequest, Health, Tier, Usage
from engine_adapters.embedded.models.chat_template import chat_template_text
from engine_adapters.embedded.output.pipeline import OutputPipeline
from engine_adapters.errors import (
    EngineError,
    EngineFailureError,
    EngineNotReadyError,
    EngineOverloadedError,
    InvalidRequestError,
)
from engine_adapters.remote.sglang import tiers_of
from engine_adapters.sglang_process.chats import chat_events, chat_request
from engine_adapters.sglang_process.child import Child
from engine_adapters.sglang_process.config import SGLangConfig
from engine_adapters.sglang_process.native import events_of, native_request
from engine_adapters.sglang_process.proof import Proof, Render, prove, say
from engine_adapters.sglang_process.tool_parser import sglang_tool_parser

log = logging.getLogger("kvgate.sglang")

# The path of a special token that was written in a chat body; None: there is none. Called on a thread.
Typed: TypeAlias = Callable[[Mapping[str, Any]], str | None]

# Thinking as SGLang finds it in the template, and what it reused in every answer.
_DEFAULTS = {"reasoning_parser": "auto", "enable_cache_report": True}


class SGLangProcess(EngineAdapter):
    """Runs `sglang.Engine` in a child, which is started again when it ends by itself. Made with `start`.

    Completions are token ids. Chats are answered by the classes behind SGLang's chat route, in the child; where it was
    proved that both render them alike, they get the ids made here.
    """

    def __init__(self, config: SGLangConfig, child: Child, proof: Proof, typed: Typed | None = None) -> None:
        self._config = config
        self._child = child
        self._proof = proof
        self._typed = typed
        self._tokenizer = Tokenizer.from_file(str(config.model / "tokenizer.json"))
        self._vocabulary = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self._running = 0
        self._counted = dict.fromkeys(
            (
                "requests",
                "prompt_tokens",
                "reused_tokens",
                "completion_tokens",
                "failed_requests",
                "restarts",
            ),
            0,
        )
        self._down: str | None = None  # why nothing is taken now
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def start(
        cls, config: SGLangConfig, render: Render | None = None, typed: Typed | None = None
    ) -> "SGLangProcess":
        """Start the engine, wait for it, and prove how it renders chats; raises EngineNotReadyError.

        `render`: how they are rendered here; None: nothing is proved, and SGLang renders them all. `typed`: where
        special tokens were written in a chat, which would act in SGLang's rendering; None: they may.
        """
        child = await _started(config)
        try:
            proof = Proof() if render is None else await prove(partial(_rendered, child), render)
        except BaseException:
            await child.close(at_once=True)
            raise
        say(proof)
        return cls(config, child, proof, typed)

    def capabilities(self) -> Capabilities:
        info = self._child.info
        page = info.get("page_size")
        return Capabilities(
            model=self._config.served_name or self._config.model.name,
            context_length=int(info["context_length"]),
            reports_reuse=True,  # native answers always do
            block_size=page if isinstance(page, int) else None,
            takes_token_ids=True,
            tiers=tiers_of(info),
            tool_parser=info.get("tool_call_parser"),
            chats_as_ids=self._proof.proved,
        )

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Event]:
        child = self._ready()
        op, asked = await self._asked(request, int(child.info["context_length"]))
        self._running += 1
        ended = False
        try:
            async with aclosing(child.stream(op, {"request": asked})) as said:
                async for event in _events(request, said):
                    yield self._count(event) if isinstance(event, Usage) else event
            ended = True
        except EngineError:
            self._counted["failed_requests"] += 1
            ended = True
            raise
        finally:
            self._running -= 1
            if not ended:
                child.abort(request.request_id)

    async def _asked(self, request: GenerateRequest, context_length: int) -> tuple[str, dict[str, Any]]:
        """The child's operation, and what it is asked."""
        if request.route != "chat":
            self._check_ids(request.prompt_ids)
            return "generate", native_request(request, context_length)
        by_ids = self._proof.covers(request.body)
        if not by_ids and request.body.get("add_generation_prompt") is False:
            raise InvalidRequestError(
                "SGLang renders this chat itself, and always opens a turn: leave out add_generation_prompt, or use "
                "continue_final_message.",
                param="add_generation_prompt",
            )
        if not by_ids and self._typed is not None:
            await self._refuse_typed(self._typed, request.body)
        return "chat", chat_request(request, context_length, by_ids=by_ids)

    def _check_ids(self, ids: NDArray[np.int32]) -> None:
        """SGLang looks ids up in a table of weights, and its process dies with one that is not in there."""
        if len(ids) and not (ids.min() >= 0 and ids.max() < self._vocabulary):
            raise InvalidRequestError(
                f"The prompt holds token ids outside this model's vocabulary of {self._vocabulary}.",
                param="prompt",
            )

    @staticmethod
    async def _refuse_typed(typed: Typed, body: Mapping[str, Any]) -> None:
        path = await asyncio.to_thread(typed, body)
        if path is not None:
            raise InvalidRequestError(
                "This chat is rendered by SGLang, where special tokens of the model that are written in content act: "
                "leave them out, or have the operator allow them (control_tokens_in_content).",
                param=path,
            )

    def _count(self, usage: Usage) -> Usage:
        counted = self._counted
        counted["requests"] += 1
        counted["prompt_tokens"] += usage.prompt_tokens
        counted["reused_tokens"] += usage.reuse.reused or 0
        counted["completion_tokens"] += usage.completion_tokens
        return usage

    async def tokenize(self, text: str) -> NDArray[np.int32]:
        encoding = await asyncio.to_thread(self._tokenizer.encode, text, add_special_tokens=False)
        return np.asarray(encoding.ids, dtype=np.int32)

    async def counters(self) -> Mapping[str, float]:
        return {**self._counted, "running": self._running}

    async def health(self) -> Health:
        return Health(True, "ready") if self._down is None else Health(False, self._down)

    async def flush(self, tiers: Collection[Tier] | None = None) -> None:
        """On all tiers: SGLang does not tell them apart here."""
        answer = await self._ready().call("flush")
        if not answer.get("success"):
            raise EngineFailureError(
                f"SGLang did not flush its cache: {answer.get('message') or 'requests run or wait'}. "
                "Try again when it is idle."
            )

    async def aclose(self) -> None:
        self._down = "the engine has stopped"
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._child.close()

    def _ready(self) -> Child:
        if self._down is not None:
            raise EngineNotReadyError(f"SGLang takes no requests: {self._down}.")
        if self._running >= self._config.max_requests:
            raise EngineOverloadedError(f"{self._running} requests run in SGLang already; come back later.")
        return self._child

    async def _watch(self) -> None:
        """Start the engine again when it ends by itself, so many times in a row."""
        tries = 0
        while True:
            await self._child.ended.wait()
            if tries >= self._config.restarts:
                break
            served = self._counted["requests"]
            self._down = "its process has ended and is started again"
            log.error("SGLang's process %d has ended by itself; it is started again", self._child.pid)
            await self._child.close(at_once=True)
            await asyncio.sleep(self._config.restart_wait_s * 2**tries)
            try:
                self._child = await _started(self._config)
            except EngineNotReadyError as error:
                log.error("SGLang did not come up again: %s", error)  # noqa: TRY400
                tries += 1
                continue
            self._counted["restarts"] += 1
            self._down = None
            await self._child.ended.wait()
            tries = 0 if self._counted["requests"] > served else tries + 1
        await self._child.close(at_once=True)
        self._down = f"its process has ended {tries + 1} times in a row; see the log, then start kvgate again"


def _events(request: GenerateRequest, said: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[Event]:
    if request.route == "chat":
        return chat_events(said)
    return events_of(request, [OutputPipeline(index=index) for index in range(request.sampling.n)], said)


async def _rendered(child: Child, body: Mapping[str, Any]) -> list[int] | None:
    """The ids that SGLang makes of a probe; raises EngineError where its process has ended."""
    try:
        ids = (await child.call("render", {"request": {"model": "probe", **body}})).get("ids")
    except EngineError:
        if child.ended.is_set():
            raise
        return None
    return ids if isinstance(ids, list) else None


async def _started(config: SGLangConfig) -> Child:
    parser = config.tool_parser or sglang_tool_parser(chat_template_text(config.model))
    engine = {"model_path": str(config.model), **_DEFAULTS, "tool_call_parser": parser, **config.engine}
    return await Child.start(config.python, engine, config.environ, config.start_s)
