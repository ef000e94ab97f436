"""Metrics of requests under the GenAI semantic conventions' names: what each says, and of which requests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from gateway.telemetry.buckets import (
    QUEUE,
    REQUEST_DURATION,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKEN_USAGE,
)
from gateway.telemetry.facts import RequestLabels
from gateway.telemetry.otel.attributes import Attributes, error_type, who
from gateway.telemetry.tally import Tallied, recomputed, reused, total

# A number of `RequestFacts`, of which `Tallied` has the distribution.
Measured: TypeAlias = Literal[
    "duration_s", "ttft_s", "time_per_output_token_s", "queued_s", "input_tokens", "output_tokens"
]
AttributesOf: TypeAlias = Callable[[RequestLabels], Attributes]


class Distributed(NamedTuple):
    """A histogram."""

    name: str
    unit: str
    text: str
    bounds: tuple[float, ...]
    measured: Mapping[Measured, AttributesOf]


class Summed(NamedTuple):
    """A counter."""

    name: str
    unit: str
    text: str
    attributes: AttributesOf
    amount: Callable[[Tallied], float | None]  # None: nothing is known


def _duration(labels: RequestLabels) -> Attributes:
    return who(labels) | error_type(labels)


def _class(labels: RequestLabels) -> Attributes:
    return who(labels) | {"kvgate.reuse.class": str(labels.reuse_class)}


def _reuse(labels: RequestLabels) -> Attributes:
    return who(labels) | {
        "kvgate.reuse.status": labels.reuse_status,
        "kvgate.reuse.class": str(labels.reuse_class),
    }


def _modality(labels: RequestLabels) -> Attributes:
    # Engines do not say how many tokens of a prompt are text.
    return who(labels) | {"gen_ai.token.modality": "unknown"}


def _input(labels: RequestLabels) -> Attributes:
    return who(labels) | {"gen_ai.token.type": "input"}


def _output(labels: RequestLabels) -> Attributes:
    return who(labels) | {"gen_ai.token.type": "output"}


OF_ALL = Distributed(
    "gen_ai.server.request.duration",
    "s",
    "From first byte to last byte.",
    REQUEST_DURATION,
    {"duration_s": _duration},
)
OF_ANSWERED: Sequence[Distributed] = (
    Distributed(
        "gen_ai.server.time_to_first_token",
        "s",
        "From first byte to first token.",
        TIME_TO_FIRST_TOKEN,
        {"ttft_s": _class},
    ),
    Distributed(
        "gen_ai.server.time_per_output_token",
        "s",
        "Decoding, after the first token.",
        TIME_PER_OUTPUT_TOKEN,
        {"time_per_output_token_s": who},
    ),
    Distributed("kvgate.engine.queue.duration", "s", "Waiting in the engine.", QUEUE, {"queued_s": who}),
    Distributed(
        "gen_ai.client.token.usage",
        "{token}",
        "Tokens of one request.",
        TOKEN_USAGE,
        {"input_tokens": _input, "output_tokens": _output},
    ),
)
COUNTERS: Sequence[Summed] = (
    Summed(
        "gen_ai.client.inference.usage.input_tokens",
        "{token}",
        "Prompt tokens.",
        _modality,
        lambda each: total(each.input_tokens),
    ),
    Summed(
        "gen_ai.client.inference.usage.output_tokens",
        "{token}",
        "Generated tokens.",
        _modality,
        lambda each: total(each.output_tokens),
    ),
    Summed(
        "gen_ai.client.inference.usage.cache_read.input_tokens",
        "{token}",
        "Reused prompt tokens, of requests that reported.",
        _modality,
        reused,
    ),
    Summed(
        "kvgate.recomputed_tokens",
        "{token}",
        "Prefilled prompt tokens, of requests that reported.",
        who,
        recomputed,
    ),
    Summed(
        "kvgate.requests_by_reuse",
        "{request}",
        "Requests by what is known of their reuse.",
        _reuse,
        lambda each: each.requests,
    ),
)
BY_TIER = ("kvgate.reused_tokens_by_tier", "{token}", "Reused tokens where tiers were told apart.")
