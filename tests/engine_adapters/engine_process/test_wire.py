"""What crosses between processes is what went in."""

import math

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.base import (
    Event,
    Finished,
    GenerateRequest,
    GrammarSpec,
    ReasoningDelta,
    Retention,
    ReuseReport,
    SamplingParams,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolOptions,
    Usage,
)
from engine_adapters.engine_process.wire import event_read, event_sent, request_read, request_sent

text = st.text(max_size=8)
counts = st.integers(0, 2**31 - 1)
flat_logprobs = st.builds(
    TokenLogprob, counts, text, st.binary(max_size=4), st.floats(allow_nan=False), st.just(())
)
logprobs = st.lists(
    st.builds(
        TokenLogprob,
        counts,
        text,
        st.binary(max_size=4),
        st.floats(allow_nan=False),
        st.tuples(flat_logprobs),
    ),
    max_size=2,
).map(tuple)
reports = st.builds(
    ReuseReport,
    st.none() | counts,
    st.none() | counts,
    st.none() | st.dictionaries(st.sampled_from(["device", "host", "disk", "store"]), counts),
    text,
    st.sampled_from(["reported", "not_reported", "inconsistent"]),
)
events = st.one_of(
    st.builds(TextDelta, counts, text, logprobs),
    st.builds(ReasoningDelta, counts, text, logprobs),
    st.builds(ToolCallDelta, counts, counts, text, st.none() | text, st.none() | text, logprobs),
    st.builds(
        Finished,
        counts,
        st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
        st.none() | text | counts,
    ),
    st.builds(
        Usage, counts, counts, reports, st.none() | counts, st.none() | st.floats(0, 9), st.none() | counts
    ),
)


def through_a_frame(value: object) -> object:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


@given(events)
def test_events(event: Event) -> None:
    assert event_read(through_a_frame(event_sent(event))) == event


def test_an_impossible_token_stays_impossible() -> None:
    never = TextDelta(0, "", (TokenLogprob(1, "x", b"x", -math.inf),))
    assert event_read(through_a_frame(event_sent(never))) == never


wide = st.text(st.characters(), max_size=8)  # lone surrogates among them
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | wide,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(wide, inner, max_size=2),
    max_leaves=5,
)
requests = st.builds(
    GenerateRequest,
    request_id=text,
    route=st.sampled_from(["chat", "completions"]),
    model=text,
    prompt_ids=st.lists(counts, max_size=5).map(lambda ids: np.asarray(ids, dtype=np.int32)),
    sampling=st.builds(
        SamplingParams,
        temperature=st.floats(0, 2),
        logit_bias=st.dictionaries(counts, st.floats(-100, 100), max_size=2),
        seed=st.none() | st.integers(-(2**63), 2**63 - 1),
        stop=st.lists(text, max_size=2).map(tuple),
        stop_token_ids=st.lists(counts, max_size=2).map(tuple),
        max_tokens=st.none() | counts,
        grammar=st.none()
        | st.builds(GrammarSpec, st.sampled_from(["json_object", "json_schema"]), st.none() | text),
    ),
    scope=text,
    tools=st.none()
    | st.builds(
        ToolOptions,
        st.lists(st.dictionaries(wide, json_values, max_size=2), max_size=2).map(tuple),
        wide,
        st.booleans(),
        st.booleans(),
    ),
    reasoning=st.booleans(),
    starts_in_reasoning=st.booleans(),
    retention=st.none()
    | st.builds(Retention, st.floats(0, 9), st.none() | st.floats(0, 9), st.sampled_from([-1, 0, 1])),
)


@given(requests)
def test_requests_but_for_their_bodies(request: GenerateRequest) -> None:
    read = request_read(through_a_frame(request_sent(request)))  # type: ignore[arg-type]
    assert read.prompt_ids.dtype == np.int32
    assert read.prompt_ids.tolist() == request.prompt_ids.tolist()
    for name in GenerateRequest.__slots__:
        if name not in ("prompt_ids", "body", "raw"):
            assert getattr(read, name) == getattr(request, name), name


@given(st.dictionaries(wide, json_values, max_size=3))
def test_bodies_where_they_are_asked_for(body: dict[str, object]) -> None:
    ids = np.asarray([1], dtype=np.int32)
    request = GenerateRequest("r", "chat", "m", ids, SamplingParams(), body=body)
    assert request_read(through_a_frame(request_sent(request, body=True))).body == body  # type: ignore[arg-type]
    assert request_read(through_a_frame(request_sent(request))).body == {}  # type: ignore[arg-type]
