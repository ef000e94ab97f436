"""Fields which chat and text completions share, and how they become SamplingParams."""

import re
from typing import Annotated, Any

from pydantic import Field, field_validator

from engine_adapters.base import GrammarSpec, SamplingParams
from gateway.errors import invalid, unsupported
from gateway.settings import GatewaySettings
from gateway.wire.extension import KvgateFields, check_extension
from gateway.wire.template_fields import TemplateFields, check_template
from gateway.wire.validation import WireModel

_INT64 = 2**63
_MAX_STOP_CHARS = 1024
_MAX_BIASES = 4096
_TOKEN_ID = re.compile(r"[0-9]{1,9}")

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class StreamOptions(WireModel):
    """How a stream is written."""

    include_usage: bool | None = None


class SamplingFields(TemplateFields):
    """What both generation routes take. None stands for a default."""

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    # Far smaller ones would carry logits out of float32.
    repetition_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None
    logit_bias: dict[str, float] | None = None
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    stop: Any = Field(default=None, validate_default=True)  # a list of strings once validated
    stop_token_ids: Annotated[list[TokenId], Field(max_length=256, fail_fast=True)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None
    prompt_logprobs: Any = None
    kvgate: KvgateFields | None = None

    @field_validator("logit_bias")
    @classmethod
    def _biases(cls, biases: dict[str, float] | None) -> dict[str, float] | None:
        for token, bias in (biases or {}).items():
            if not _TOKEN_ID.fullmatch(token):
                raise ValueError("keys must be token ids")
            if not -100 <= bias <= 100:
                raise ValueError("biases must be between -100 and 100")
        if len(biases or ()) > _MAX_BIASES:
            raise ValueError(f"at most {_MAX_BIASES} biases are taken")
        return biases

    @field_validator("stop")
    @classmethod
    def _stops(cls, stop: Any) -> list[str]:
        stops = stop if isinstance(stop, list) else [] if stop is None else [stop]
        if not all(isinstance(text, str) for text in stops):
            raise ValueError("must be a string or a list of strings")
        if not all(1 <= len(text) <= _MAX_STOP_CHARS for text in stops):
            raise ValueError(f"each stop string must have 1 to {_MAX_STOP_CHARS} characters")
        return stops

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def check_common(fields: SamplingFields, settings: GatewaySettings) -> None:
    """Refuse what no field's own range says; raises ApiError 400."""
    check_extension(fields.kvgate, settings)
    if fields.stream_options is not None and not fields.stream:
        raise invalid("'stream_options' needs 'stream': true.", "stream_options")
    if len(fields.stop) > settings.max_stops:
        raise invalid(f"At most {settings.max_stops} stop strings are taken.", "stop")
    if (fields.n or 1) > settings.max_choices:
        raise invalid(f"'n' can be at most {settings.max_choices}.", "n")
    if fields.prompt_logprobs is not None:
        raise unsupported("Log probabilities of the prompt are not supported.", "prompt_logprobs")
    check_template(fields)


def sampling_params(
    fields: SamplingFields, *, max_tokens: int, logprobs: int | None, grammar: GrammarSpec | None = None
) -> SamplingParams:
    """The engine's form of the checked fields."""
    top_k = max(fields.top_k or 0, 0)
    top_p = 1.0 if fields.top_p is None else fields.top_p
    if top_p == 0:  # the smallest nucleus is the most likely token
        top_p, top_k = 1.0, 1
    return SamplingParams(
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=fields.min_p or 0.0,
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        repetition_penalty=fields.repetition_penalty or 1.0,
        logit_bias={int(token): bias for token, bias in (fields.logit_bias or {}).items()},
        seed=fields.seed,
        stop=tuple(fields.stop),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        max_tokens=max_tokens,
        min_tokens=fields.min_tokens or 0,
        ignore_eos=bool(fields.ignore_eos),
        include_stop=bool(fields.include_stop_str_in_output),
        skip_special_tokens=fields.skip_special_tokens is not False,
        logprobs=logprobs,
        n=fields.n or 1,
        grammar=grammar,
    )
