"""The contract between the gateway and every engine: one request in, a stream of events out."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine_adapters.errors import UnsupportedByEngineError

Tier = Literal["device", "host", "disk", "store"]
ReuseStatus = Literal["reported", "not_reported", "inconsistent"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class ReuseReport(msgspec.Struct, frozen=True):
    """How much of one prompt the engine did not compute again, as the engine itself counted it.

    `None` means "not said" and is never replaced by 0.
    """

    prompt: int | None  # tokens
    reused: int | None  # tokens, reused <= prompt unless status is "inconsistent"
    by_tier: Mapping[Tier, int] | None  # tokens; sums to reused where present
    source: str  # which field or counter said so, for example "embedded" or "usage.prompt_tokens_details"
    status: ReuseStatus


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """What the generated text must look like."""

    kind: Literal["json_object", "json_schema"]
    schema: str | None = (
        None  # the JSON schema as JSON text, for "json_schema"; property order is output order
    )


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The tools a chat request offers, as the client sent them."""

    tools: tuple[
        Mapping[str, Any], ...
    ]  # OpenAI form: {"type": "function", "function": {"name", "parameters", ...}}
    choice: Literal["auto", "none", "required"] | str = (
        "auto"  # any other string: the name of the one to call
    )
    named: bool = False  # True: `choice` is a function's name
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. Defaults are OpenAI's; ranges are checked by the gateway."""

    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    max_tokens: int | None = None  # None: until the context is full
    min_tokens: int = 0
    ignore_eos: bool = False
    include_stop: bool = False  # True: the stop string stays at the end of the text
    skip_special_tokens: bool = True
    logprobs: int | None = None  # None: none; k >= 0: the chosen token's and the k most likely ones'
    n: int = 1
    grammar: GrammarSpec | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """Wishes for the prefix that a request leaves in the cache, its answer included. Seconds count from its end.

    Each engine grants them within limits of its own, or has none; nothing fails where they are not granted.
    """

    pin_s: float = 0.0  # keep it for so long
    ttl_s: float | None = None  # not used again by then, it goes before all others
    priority: Literal[-1, 0, 1] = 0  # -1: it goes before all others; 1: after them


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One request to one engine.

    `prompt_ids` is what the embedded engine and the completions route use; engines with a chat route of their own
    get `body`, since their tool, reasoning and grammar parsers live there.
    """

    request_id: str
    route: Literal["chat", "completions"]
    model: str
    prompt_ids: NDArray[np.int32]  # shape [prompt tokens]
    sampling: SamplingParams
    scope: str = "default"  # whose memory may be shared: tenant + model
    tools: ToolOptions | None = None
    reasoning: bool = True  # False: text between thinking tags is ordinary content
    starts_in_reasoning: bool = False  # True: the rendered prompt already ends inside an opened thinking tag
    body: Mapping[str, Any] = field(default_factory=dict)
    retention: Retention | None = None  # None: no wish
    raw: bytes | None = None  # the bytes of `body` as they came; None: it was rewritten, and is written anew


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One generated token's log probability, natural logarithm, before temperature and penalties."""

    token_id: int  # -1: not said
    token: str
    raw: bytes  # the token's own UTF-8 bytes, which may be part of a character
    logprob: float
    top: tuple["TokenLogprob", ...] = ()  # most likely first


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New content of choice `index`. `text` may be empty where only logprobs are new."""

    index: int
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """New thinking text of choice `index` (`reasoning_content` on the wire)."""

    index: int
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """Part of a tool call: the first one of a call has `id` and `name`, the others only more `arguments` text."""

    index: int
    call: int  # 0 for the first call of this choice
    arguments: str
    id: str | None = None
    name: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """Choice `index` ends. `stop` names what ended it, where it was a stop string or token."""

    index: int
    reason: FinishReason
    stop: str | int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """The last event of a request that did not fail."""

    prompt_tokens: int
    completion_tokens: int  # summed over choices
    reuse: ReuseReport
    reasoning_tokens: int | None = None
    queue_s: float | None = (
        None  # seconds from its arrival in the engine until it was worked on; None: not said
    )
    matched_tokens: int | None = None  # prompt tokens that the engine's index found; None: not said


Event = TextDelta | ReasoningDelta | ToolCallDelta | Finished | Usage


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, as found at registration."""

    model: str  # the name it serves under
    context_length: int  # tokens, prompt and completion together
    reports_reuse: bool
    block_size: int | None  # tokens; None: not known
    takes_token_ids: bool
    tiers: tuple[Tier, ...] = ("device",)
    tool_parser: str | None = None  # the family's parser; None: tool calls are not parsed
    chats_as_ids: tuple[str, ...] | None = (
        None  # kinds of chats whose token ids, made here, were proved equal to the engine's; None: it has no other
    )


@dataclass(frozen=True, slots=True)
class Health:
    """`ready`: takes requests now. `detail` says why not, in words for an operator."""

    ready: bool
    detail: str
    known: bool = True  # False: it was not asked, and is taken to be ready


@dataclass(frozen=True, slots=True)
class Purged:
    """What became of a purge until it returned."""

    blocks: int | None  # that could be reached; None: not said
    pending: tuple[
        Tier, ...
    ] = ()  # tiers that hang: nothing is served from there, the bytes go when they answer


class EngineAdapter(ABC):
    """One engine. Every method may be called from the event loop and never blocks it."""

    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the engine can do; raises EngineNotReadyError before it is known."""

    @abstractmethod
    def generate(self, request: GenerateRequest) -> AsyncIterator[Event]:
        """Stream the events of one request: deltas, one Finished a choice, then one Usage.

        Closing the iterator (or cancelling the task that reads it) cancels the request in the engine.

        Raises:
            InvalidRequestError: before the first event.
            EngineError: at any time; the stream then ends without Usage.
        """

    @abstractmethod
    async def tokenize(self, text: str) -> NDArray[np.int32]:
        """Token ids of plain text, special tokens not added."""

    @abstractmethod
    async def counters(self) -> Mapping[str, float]:
        """The engine's own counters since its start, and what queue, batch and cache hold now.

        Flat names in lower case; a part that names a tier, a link or a reason stands at the end of a name. Names
        of the embedded engine's cache begin with `cache_`, see `cache_core.flat_record`.
        """

    @abstractmethod
    async def health(self) -> Health:
        """Whether the engine takes requests now."""

    @abstractmethod
    async def flush(self, tiers: Collection[Tier] | None = None) -> None:
        """Forget every cached prefix that no running request uses, so that the next ones are computed.

        `tiers`: on these alone; None: on all that no other engine shares. Where tiers cannot be told apart, on all.
        """

    async def purge(self, scope: str) -> Purged:
        """Forget all that is kept for one scope, on every tier, at once and for good.

        When this returns nothing of it is reused any more, whatever runs or moves: what running requests of that
        scope compute is for themselves alone.

        Raises:
            UnsupportedByEngineError: the engine cannot forget one scope.
            EngineFailureError: some bytes could not be erased.
        """
        raise UnsupportedByEngineError(
            f"{type(self).__name__} cannot forget one scope: flush the engine, which forgets all of them."
        )

    @abstractmethod
    async def aclose(self) -> None:
        """Stop the engine; running requests end with EngineNotReadyError."""
