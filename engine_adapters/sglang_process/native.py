"""SGLang's native form of a request and of its answers: what `/generate` and `sglang.Engine` both speak."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_adapters.base import (
    Event,
    FinishReason,
    GenerateRequest,
    GrammarSpec,
    SamplingParams,
    TokenLogprob,
    Usage,
)
from engine_adapters.embedded.output.pipeline import OutputPipeline
from engine_adapters.errors import (
    ContextLengthError,
    EngineError,
    EngineFailureError,
    EngineOverloadedError,
    InvalidRequestError,
)
from engine_adapters.reuse.engines import read_sglang
from engine_adapters.reuse.reading import count, part

_REASONS: Mapping[str, FinishReason] = {"stop": "stop", "length": "length"}
_ANY_OBJECT = '{"type": "object"}'


def native_request(request: GenerateRequest, context_length: int) -> dict[str, Any]:
    """The JSON object that asks for this, as a stream. An empty scope is no salt.

    Raises:
        ContextLengthError: the prompt leaves no room for a token.
    """
    prompt = len(request.prompt_ids)
    room = context_length - prompt - 1  # the engine keeps one place
    if room < 1:
        raise ContextLengthError(
            f"This model's context is {context_length} tokens; the prompt has {prompt}.",
            prompt_tokens=prompt,
            limit=context_length,
        )
    sampling = request.sampling
    asked: dict[str, Any] = {
        "rid": request.request_id,
        "input_ids": request.prompt_ids.tolist(),
        "sampling_params": _sampling(sampling, room),
        "stream": True,
    }
    if request.scope:
        asked["cache_salt"] = request.scope
    if sampling.logprobs is not None:
        asked |= {
            "return_logprob": True,
            "top_logprobs_num": sampling.logprobs,
            "return_text_in_logprobs": True,
        }
    return asked


def _sampling(sampling: SamplingParams, room: int) -> dict[str, Any]:
    limit = room if sampling.max_tokens is None else min(sampling.max_tokens, room)
    params: dict[str, Any] = {
        "max_new_tokens": limit,
        "min_new_tokens": min(sampling.min_tokens, limit),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "no_stop_trim": sampling.include_stop,
        "skip_special_tokens": sampling.skip_special_tokens,
        "n": sampling.n,
    }
    if sampling.seed is not None:
        params["sampling_seed"] = sampling.seed
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    if sampling.grammar is not None:
        params["json_schema"] = _schema(sampling.grammar)
    return params


def _schema(grammar: GrammarSpec) -> str:
    return _ANY_OBJECT if grammar.kind == "json_object" or grammar.schema is None else grammar.schema


@dataclass(frozen=True, slots=True)
class Piece:
    """What one native event adds to one choice."""

    index: int
    text: str
    tokens: int  # generated since the last event
    logprobs: tuple[TokenLogprob, ...]
    finish: FinishReason | None
    stop: str | int | None  # what ended it, where that was a stop string or token


@dataclass(slots=True)
class _Seen:
    """How far one choice has come."""

    text: str = ""
    given: int = 0  # characters given out
    tokens: int = 0
    logprobs: int = 0
    meta: Mapping[str, Any] = field(default_factory=dict)


class NativeStream:
    """Reads the events of one request. Each has a choice's whole text, or under `added` what is new of it.

    Whole texts may become shorter at the end, where a stop string is cut off: the text that may be the beginning of
    one is held back until it is known. Log probabilities are whole, too, or those from `logprobs_from` on.
    """

    def __init__(self, request: GenerateRequest) -> None:
        self._stops = () if request.sampling.include_stop else request.sampling.stop
        self._seen = [_Seen() for _ in range(request.sampling.n)]

    def read(self, event: Mapping[str, Any]) -> Piece:
        """What this event adds.

        Raises:
            EngineError: it says that the request has failed.
        """
        raise_error(event)
        meta = part(event, "meta_info")
        index = count(event, "index") or 0
        if not 0 <= index < len(self._seen) or not meta:
            raise EngineFailureError("SGLang answered in an unknown form.")
        seen = self._seen[index]
        seen.meta = meta
        reason = meta.get("finish_reason")
        finish, stop = _finish(reason) if isinstance(reason, Mapping) else (None, None)
        tokens = count(meta, "completion_tokens") or 0
        piece = Piece(
            index,
            self._new_text(seen, event, ended=finish is not None),
            tokens - seen.tokens,
            _new_logprobs(seen, event, meta),
            finish,
            stop,
        )
        seen.tokens = tokens
        return piece

    def usage(self) -> Usage:
        """What the whole request took; the prompt and what was reused of it count once."""
        read = read_sglang({"meta_info": self._seen[0].meta})
        return Usage(
            read.reuse.prompt or 0,
            sum(seen.tokens for seen in self._seen),
            read.reuse,
            sum(count(seen.meta, "reasoning_tokens") or 0 for seen in self._seen),
        )

    def _new_text(self, seen: _Seen, event: Mapping[str, Any], *, ended: bool) -> str:
        added = event.get("added")
        seen.text = seen.text + added if isinstance(added, str) else str(event.get("text") or "")
        until = len(seen.text) - (0 if ended else held_back(seen.text, self._stops))
        new = seen.text[seen.given : until]
        seen.given = max(seen.given, until)
        return new


def _new_logprobs(seen: _Seen, event: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[TokenLogprob, ...]:
    tokens = meta.get("output_token_logprobs")
    if not isinstance(tokens, Sequence):
        return ()
    first = count(event, "logprobs_from") or 0
    start = max(0, seen.logprobs - first)
    top = meta.get("output_top_logprobs") or [()] * len(tokens)
    seen.logprobs = first + len(tokens)
    return tuple(_logprob(each, most) for each, most in zip(tokens[start:], top[start:], strict=False))


async def events_of(
    request: GenerateRequest,
    pipelines: Sequence[OutputPipeline],
    native: AsyncIterator[Mapping[str, Any]],
) -> AsyncIterator[Event]:
    """The events a client gets of what SGLang says; `pipelines`: fresh, one a choice."""
    stream = NativeStream(request)
    async for each in native:
        piece = stream.read(each)
        pipeline = pipelines[piece.index]
        events = pipeline.push(piece.text, piece.logprobs)
        if piece.finish is not None:
            events += pipeline.finish(piece.finish, piece.stop)
        for event in events:
            yield event
    yield stream.usage()


def held_back(text: str, stops: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a stop string."""
    longest = 0
    for stop in stops:
        for length in range(min(len(stop) - 1, len(text)), longest, -1):
            if text.endswith(stop[:length]):
                longest = length
                break
    return longest


def _logprob(given: Sequence[Any], most: Sequence[Any] | None = ()) -> TokenLogprob:
    """`[logprob, id, text]`. A text that is part of a character has lost its bytes on the way."""
    value, token_id, text = given
    return TokenLogprob(
        int(token_id),
        str(text or ""),
        str(text or "").encode(),
        float(value),
        tuple(_logprob(each) for each in most or ()),
    )


def _finish(reason: Mapping[str, Any]) -> tuple[FinishReason, str | int | None]:
    matched = reason.get("matched")
    kind = _REASONS.get(str(reason.get("type")))
    if kind is None:
        raise error_of(str(reason.get("message") or "the request was aborted"), reason.get("status_code"))
    return kind, matched if isinstance(matched, (str, int)) else None


def raise_error(event: Mapping[str, Any]) -> None:
    """Raise what an event says, where it is an error."""
    error = part(event, "error")
    if error:
        raise error_of(str(error.get("message")), error.get("code"))


def error_of(message: str, status: object) -> EngineError:
    """The error that SGLang's message and status stand for; statuses come as numbers or as an enum's text."""
    number = int(status) if isinstance(status, (int, float)) else None
    if number is None and isinstance(status, str):
        number = 400 if "BAD_REQUEST" in status.upper() else None
    if number is not None and 400 <= number < 500:
        overloaded = number == 429
        return EngineOverloadedError(message) if overloaded else InvalidRequestError(message)
    return EngineOverloadedError(message) if number == 503 else EngineFailureError(message)
