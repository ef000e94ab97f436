"""Chats as SGLang's own chat route takes them, and the events of what it answers.

In the child the classes behind SGLang's HTTP route do the work: its parsers of calls and thinking, its grammars for
forced calls and `response_format`, its defaults for sampling.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import (
    Event,
    Finished,
    FinishReason,
    GenerateRequest,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from engine_adapters.errors import ContextLengthError, EngineFailureError
from engine_adapters.reuse.engines import read_sglang
from engine_adapters.reuse.reading import count, part
from engine_adapters.sglang_process.native import raise_error

# All else that a client sends stays here: among SGLang's fields are ones that choose caches, code and weights.
TAKEN = (
    "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "chat_template_kwargs",
    "reasoning_effort", "continue_final_message", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "seed", "stop", "stop_token_ids", "ignore_eos",
    "min_tokens", "skip_special_tokens", "n", "logprobs", "top_logprobs",
)  # fmt: skip
_LIMITS = ("max_completion_tokens", "max_tokens")
_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter",
}  # fmt: skip
_NO_ID = -1  # of a token whose text alone is told


def chat_request(request: GenerateRequest, context_length: int, *, by_ids: bool) -> dict[str, Any]:
    """The JSON object that asks for this chat, as a stream; `by_ids`: with our ids in place of SGLang's rendering.

    Raises:
        ContextLengthError: the prompt leaves no room for a token.
    """
    body, sampling = request.body, request.sampling
    asked = {key: body[key] for key in TAKEN if body.get(key) is not None}
    if asked.get("top_p") == 0:  # not taken there; the smallest nucleus is the most likely token
        asked |= {"top_p": sampling.top_p, "top_k": sampling.top_k}
    asked |= {
        "model": request.model,
        "rid": request.request_id,
        "cache_salt": request.scope,
        "no_stop_trim": sampling.include_stop,
        "separate_reasoning": request.reasoning,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_cached_tokens_details": True,
    }
    room = _room(request.prompt_ids, context_length)
    if any(body.get(key) is not None for key in _LIMITS) and sampling.max_tokens is not None:
        asked["max_completion_tokens"] = min(sampling.max_tokens, room)
    if by_ids:
        asked["input_ids"] = request.prompt_ids.tolist()
    return asked


def _room(prompt: NDArray[np.int32], context_length: int) -> int:
    room = context_length - len(prompt) - 1  # the engine keeps one place
    if room < 1:
        raise ContextLengthError(
            f"This model's context is {context_length} tokens; the prompt has {len(prompt)}.",
            prompt_tokens=len(prompt),
            limit=context_length,
        )
    return room


async def chat_events(chunks: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[Event]:
    """The events of SGLang's chunks (OpenAI's form).

    Raises:
        EngineError: a chunk says that the request has failed, or the last ones are missing.
    """
    told: dict[str, Any] = {}
    async for chunk in chunks:
        raise_error(chunk)
        told |= {key: chunk[key] for key in ("usage", "sglext") if chunk.get(key)}
        for choice in chunk.get("choices") or ():
            for event in _choice_events(choice):
                yield event
    if "usage" not in told:
        raise EngineFailureError("SGLang ended an answer without its usage.")
    read = read_sglang(told)
    yield Usage(read.reuse.prompt or 0, read.completion_tokens or 0, read.reuse, read.reasoning_tokens)


def _choice_events(choice: Mapping[str, Any]) -> Iterator[Event]:
    index, delta = count(choice, "index") or 0, part(choice, "delta")
    logprobs = tuple(map(_logprob, part(choice, "logprobs").get("content") or ()))
    for event in _delta_events(index, delta, logprobs):
        yield event
        logprobs = ()
    if logprobs:
        yield TextDelta(index, "", logprobs)
    reason = choice.get("finish_reason")
    if reason is None:
        return
    if reason not in _REASONS:
        raise EngineFailureError(f"SGLang ended the request: {reason}.")
    stop = choice.get("matched_stop")
    yield Finished(index, _REASONS[reason], stop if isinstance(stop, (str, int)) else None)


def _delta_events(
    index: int, delta: Mapping[str, Any], logprobs: tuple[TokenLogprob, ...]
) -> Iterator[Event]:
    """The first one has the log probabilities."""
    if text := delta.get("reasoning_content"):
        yield ReasoningDelta(index, text, logprobs)
        logprobs = ()
    if text := delta.get("content"):
        yield TextDelta(index, text, logprobs)
        logprobs = ()
    for call in delta.get("tool_calls") or ():
        function = part(call, "function")
        arguments = function.get("arguments") or ""
        number = count(call, "index") or 0
        yield ToolCallDelta(index, number, arguments, call.get("id"), function.get("name"), logprobs)
        logprobs = ()


def _logprob(given: Mapping[str, Any]) -> TokenLogprob:
    token, raw = str(given.get("token") or ""), given.get("bytes")
    return TokenLogprob(
        _NO_ID,
        token,
        bytes(raw) if raw else token.encode(),
        float(given["logprob"]),
        tuple(map(_logprob, given.get("top_logprobs") or ())),
    )
