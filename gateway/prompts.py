"""Prompt ids without blocking the event loop: short prompts inline, long ones on a few threads."""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from canon.tokens.steps import Steps, finished
from gateway.settings import GatewaySettings
from gateway.side_by_side import SideBySide
from gateway.turns import OTHERS_FIRST

Result = TypeVar("Result")


class RenderedChat(Protocol):
    """A chat as the model's own template renders it."""

    @property
    def ids(self) -> NDArray[np.int32]:
        """Token ids, shape [prompt tokens]."""

    @property
    def starts_in_reasoning(self) -> bool:
        """Whether the prompt ends inside an opened thinking tag."""

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """Special tokens that were written in the request and stayed text, by path."""


class PromptSource(Protocol):
    """What the gateway needs of a prompt tokenizer. Methods are thread-safe and may take milliseconds."""

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
    ) -> RenderedChat:
        """Render and encode; raises canon's TemplateError for what the template cannot take.

        Encodings are remembered within one `scope`. As soon as it is certain that there are more than `most` tokens
        it may raise canon's PromptTooLongError, and save what the rest would take; None: any number is wanted.
        """

    def chat_steps(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        scope: str = "",
        most: int | None = None,
    ) -> Generator[None, None, RenderedChat]:
        """As `chat`, with a stop between its parts."""

    def encode(
        self, text: str, *, add_special_tokens: bool = True, scope: str = "", most: int | None = None
    ) -> NDArray[np.int32]:
        """Token ids of plain text; raises canon's TemplateError for what cannot be encoded. `most` as for `chat`."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of token ids."""

    def forget(self) -> int:
        """Drop all encodings that are remembered, of every scope; how many there were."""


class PromptThreads:
    """Runs long parsing, rendering and encoding on a bounded number of threads."""

    def __init__(self, settings: GatewaySettings, *, memory_waits: bool = False) -> None:
        """`memory_waits`: the conversation memory is on a server, which is waited for."""
        self._inline_prompt = settings.inline_prompt_bytes
        self._inline_parse = settings.inline_parse_bytes
        self._pool = ThreadPoolExecutor(settings.prompt_threads, thread_name_prefix="kvgate-prompt")
        self._waiting = self._pool
        if memory_waits:
            self._waiting = ThreadPoolExecutor(settings.memory_threads, thread_name_prefix="kvgate-memory")
        self._memory_waits = memory_waits
        self._together = SideBySide()

    def parses_here(self, size: int) -> bool:
        """Whether so many bytes are parsed where that is asked for, so that `parse` has nothing to wait for."""
        return size <= self._inline_parse

    async def parse(self, size: int, work: Callable[[], Result]) -> Result:
        """`work()`, which parses `size` bytes; on a thread if they are many."""
        return work() if size <= self._inline_parse else await self._on_thread(work)

    async def canonicalize(self, size: int, work: Callable[[], Result]) -> Result:
        """`work()`, which goes through `size` bytes of text; on a thread if they are many."""
        return work() if size <= self._inline_prompt else await self._on_thread(work)

    async def remember(self, size: int, work: Callable[[], Result]) -> Result:
        """`work()`, which goes through `size` bytes of text and uses the conversation memory."""
        if not self._memory_waits:
            return await self.canonicalize(size, work)
        return await asyncio.get_running_loop().run_in_executor(self._waiting, work)

    async def encode(self, size: int, work: Callable[[], Result]) -> Result:
        """`work()`, which renders and encodes `size` bytes; on a thread if they are many."""
        if size > self._inline_prompt:
            return await self._on_thread(work)
        # Requests that came together do this together: done whole, one behind the other, each would find the
        # processor's caches full of other steps.
        await OTHERS_FIRST
        return work()

    async def encode_together(self, size: int, steps: Callable[[], Steps[Result]]) -> Result:
        """What comes of `steps()`, which renders and encodes `size` bytes; on a thread if they are many, else side by
        side with what others of the same moment have to encode."""
        if size > self._inline_prompt:
            return await self._on_thread(lambda: finished(steps()))
        return await self._together.do(steps())

    def is_short(self, size: int) -> bool:
        """Whether work on so many bytes of text is done where it is asked for."""
        return size <= self._inline_prompt

    async def _on_thread(self, work: Callable[[], Result]) -> Result:
        # What still waits when its caller goes never runs.
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Take no more work and forget what waits."""
        for pool in (self._pool, self._waiting):
            pool.shutdown(wait=False, cancel_futures=True)
