"""The embedded engine behind the interface that all engines share."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cache_core import BlockPool, PrefixCache
from engine_adapters.base import (
    Capabilities,
    EngineAdapter,
    Event,
    GenerateRequest,
    Health,
    ReuseReport,
    ToolOptions,
    Usage,
)
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.engine import Engine
from engine_adapters.embedded.job import Done, Output
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.models import ModelFolder, resolve_model
from engine_adapters.embedded.models.chat_template import chat_template_text
from engine_adapters.embedded.output.pipeline import OutputPipeline
from engine_adapters.embedded.output.reasoning import ReasoningParser, reasoning_tags
from engine_adapters.embedded.output.tool_parsers import find_tool_parser
from engine_adapters.embedded.sampling import GrammarCompiler, GrammarMatcher
from engine_adapters.errors import EngineError, InvalidRequestError

Progress = Callable[[str], None]


class EmbeddedAdapter(EngineAdapter):
    """Runs one model in this process."""

    def __init__(
        self,
        folder: ModelFolder,
        runner: ModelRunner,
        config: EmbeddedConfig,
        chat_template: str | None = None,
    ) -> None:
        self.folder = folder
        self.runner = runner
        self.pool = BlockPool(runner.num_blocks, config.block_size)
        self.cache = PrefixCache(self.pool, copy_blocks=runner.kv.copy_blocks)
        self._tokenizer = Tokenizer.from_file(str(folder.tokenizer_path / "tokenizer.json"))
        self._grammars = GrammarCompiler(self._tokenizer, runner.vocab_size, runner.eos_token_ids)
        template = chat_template or chat_template_text(folder.tokenizer_path)
        self._tool_parser = find_tool_parser(config.tool_parser, template, self._tokenizer)
        self._reasoning_tags = reasoning_tags(template, self._tokenizer)
        self._capabilities = Capabilities(
            model=config.served_name or folder.name,
            context_length=runner.context_length,
            reports_reuse=True,
            block_size=config.block_size,
            takes_token_ids=True,
            tool_parser=None if self._tool_parser is None else self._tool_parser.name,
        )
        self.engine = Engine(runner, self.cache, self._tokenizer, config.limits)

    @classmethod
    def load(
        cls, config: EmbeddedConfig, progress: Progress, chat_template: str | None = None
    ) -> "EmbeddedAdapter":
        """Find or make the model's folder, load it and start the engine. Takes seconds: call it off the event loop.

        Raises:
            EngineError: the model cannot be found, read or run; the message says what to do.
        """
        folder = resolve_model(
            config.model,
            cache_dir=config.cache_dir,
            progress=progress,
            trust_remote_code=config.trust_remote_code,
        )
        progress(f"loading {folder.name}")
        runner = ModelRunner.load(
            folder.path,
            device=config.device,
            dtype=config.dtype,
            kv_bytes=config.kv_bytes,
            block_size=config.block_size,
            trust_remote_code=config.trust_remote_code,
            threads=config.threads,
        )
        progress("warming up")
        runner.warm_up()
        return cls(folder, runner, config, chat_template)

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Event]:
        pipelines = [self._pipeline(request, index) for index in range(request.sampling.n)]
        grammars = await self._compile_grammars(request)
        inbox = _Inbox(asyncio.get_running_loop())
        self.engine.submit(request, inbox.put, grammars)
        ended = False
        try:
            while not ended:
                for item in await inbox.take():
                    if isinstance(item, EngineError):
                        ended = True
                        raise item
                    if isinstance(item, Done):
                        ended = True
                        yield _usage(item, pipelines)
                    else:
                        for event in self._events(request, pipelines[item.index], item):
                            yield event
        finally:
            if not ended:
                self.engine.cancel(request.request_id)

    async def tokenize(self, text: str) -> NDArray[np.int32]:
        encoding = await asyncio.to_thread(self._tokenizer.encode, text, add_special_tokens=False)
        return np.asarray(encoding.ids, dtype=np.int32)

    async def counters(self) -> Mapping[str, float]:
        return self.engine.counters()

    async def health(self) -> Health:
        return Health(True, "ready") if self.engine.alive else Health(False, "the engine has stopped")

    async def flush(self) -> None:
        await asyncio.to_thread(self.cache.flush)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.engine.stop)

    def _pipeline(self, request: GenerateRequest, index: int) -> OutputPipeline:
        reasoning = None
        if request.reasoning and request.route == "chat" and self._reasoning_tags is not None:
            reasoning = ReasoningParser(*self._reasoning_tags, starts_inside=request.starts_in_reasoning)
        return OutputPipeline(request.tools, self._tool_parser, reasoning, index)

    def _events(self, request: GenerateRequest, pipeline: OutputPipeline, output: Output) -> list[Event]:
        was_done = pipeline.done
        events = pipeline.push(output.text, output.logprobs)
        if output.finish is not None:
            return events + pipeline.finish(output.finish, output.stop)
        if pipeline.done and not was_done:
            self.engine.finish_choice(request.request_id, output.index)
        return events

    async def _compile_grammars(self, request: GenerateRequest) -> list[GrammarMatcher | None]:
        if request.sampling.grammar is None and not _forces_call(request.tools):
            return [None] * request.sampling.n
        return await asyncio.to_thread(lambda: [self._grammar(request) for _ in range(request.sampling.n)])

    def _grammar(self, request: GenerateRequest) -> GrammarMatcher | None:
        if request.tools is not None and _forces_call(request.tools):
            if self._tool_parser is None:
                raise InvalidRequestError(
                    "This model has no tool-call format that this engine knows, so a call cannot be forced.",
                    param="tool_choice",
                )
            return self._grammars.compile_lark(self._tool_parser.grammar(request.tools, self._tokenizer))
        return None if request.sampling.grammar is None else self._grammars.compile(request.sampling.grammar)


class _Inbox:
    """Carries what the engine's thread gives out to the event loop, in order. Bounded by the request's max_tokens."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[Output | Done | EngineError] = deque()
        self._filled = asyncio.Event()

    def put(self, item: Output | Done | EngineError) -> None:
        """Called on the engine's thread."""
        self._items.append(item)
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:  # the loop has closed; nobody reads any more
            self._items.clear()

    async def take(self) -> list[Output | Done | EngineError]:
        """Everything that has come since the last call; waits for at least one."""
        while not self._items:
            self._filled.clear()
            if not self._items:
                await self._filled.wait()
        taken = []
        while self._items:
            taken.append(self._items.popleft())
        return taken


def _forces_call(tools: ToolOptions | None) -> bool:
    return tools is not None and (tools.named or tools.choice == "required")


def _usage(done: Done, pipelines: list[OutputPipeline]) -> Usage:
    reuse = ReuseReport(
        prompt=done.prompt_tokens,
        reused=done.reused_tokens,
        by_tier={"device": done.reused_tokens},
        source="embedded",
        status="reported",
    )
    thinks = any(p.reasoning_tokens is not None for p in pipelines)
    reasoning = sum(p.reasoning_tokens or 0 for p in pipelines) if thinks else None
    return Usage(done.prompt_tokens, done.completion_tokens, reuse, reasoning)
