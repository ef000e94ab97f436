"""Requests in SGLang's native form, and its answers as events."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.base import GenerateRequest, GrammarSpec, SamplingParams
from engine_adapters.errors import (
    ContextLengthError,
    EngineFailureError,
    EngineOverloadedError,
    InvalidRequestError,
)
from engine_adapters.sglang_process.native import NativeStream, error_of, held_back, native_request


def request(prompt: int = 10, **sampling: Any) -> GenerateRequest:
    return GenerateRequest(
        "r", "completions", "m", np.arange(prompt, dtype=np.int32), SamplingParams(**sampling), scope="t"
    )


def event(text: str, finish: dict | None = None, **meta: Any) -> dict:
    return {"text": text, "meta_info": {"finish_reason": finish, "completion_tokens": 1, **meta}}


def test_a_request_has_ids_salt_and_what_its_sampling_says():
    grammar = GrammarSpec("json_object")
    asked = native_request(
        request(seed=3, stop=("x",), logit_bias={5: 1.5}, grammar=grammar, logprobs=2, include_stop=True), 100
    )
    assert asked["input_ids"] == list(range(10))
    assert (asked["cache_salt"], asked["rid"], asked["stream"]) == ("t", "r", True)
    assert asked["top_logprobs_num"] == 2
    params = asked["sampling_params"]
    assert params["max_new_tokens"] == 89  # the rest of the context
    assert (params["top_k"], params["sampling_seed"], params["stop"]) == (-1, 3, ["x"])
    assert (params["logit_bias"], params["no_stop_trim"]) == ({"5": 1.5}, True)
    assert params["json_schema"] == '{"type": "object"}'


@pytest.mark.parametrize(("prompt", "fits"), [(98, True), (99, False), (200, False)])
def test_a_prompt_must_leave_room_for_a_token(prompt: int, fits: bool):
    if fits:
        assert native_request(request(prompt, max_tokens=50), 100)["sampling_params"]["max_new_tokens"] == 1
    else:
        with pytest.raises(ContextLengthError):
            native_request(request(prompt), 100)


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_what_is_held_back_is_the_longest_end_that_may_become_a_stop(text: str, stops: list[str]):
    starts = {stop[:n] for stop in stops for n in range(1, len(stop))}
    assert held_back(text, stops) == max(
        (n for n in range(1, len(text) + 1) if text[-n:] in starts), default=0
    )


@given(st.text("abc", max_size=20), st.text("abc", min_size=1, max_size=3), st.lists(st.integers(1, 4)))
def test_what_comes_out_is_the_text_before_its_stop_however_it_comes(text: str, stop: str, steps: list[int]):
    """SGLang shows the beginning of a stop string, and takes it back when the string is whole."""
    found = text.find(stop)
    stream = NativeStream(request(stop=(stop,)))
    out, at = "", 0
    for step in steps:
        at += step
        if at >= (len(text) if found < 0 else found + len(stop)):
            break
        out += stream.read(event(text[:at])).text
    whole = text if found < 0 else text[:found]
    reason = {"type": "length"} if found < 0 else {"type": "stop", "matched": stop}
    piece = stream.read(event(whole, reason))
    assert out + piece.text == whole
    assert (piece.finish, piece.stop) == (("length", None) if found < 0 else ("stop", stop))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        ("HTTPStatus.BAD_REQUEST", InvalidRequestError),
        (429, EngineOverloadedError),
        (503, EngineOverloadedError),
        (500, EngineFailureError),
        (None, EngineFailureError),
    ],
)
def test_errors_are_told_apart_by_their_status(status: object, kind: type[Exception]):
    assert type(error_of("why", status)) is kind


def test_an_aborted_request_fails_with_its_reason():
    abort = {"type": "abort", "message": "out of memory", "status_code": 500}
    with pytest.raises(EngineFailureError, match="out of memory"):
        NativeStream(request()).read(event("", abort))


@pytest.mark.parametrize("odd", [{}, {"index": 5, "meta_info": {"a": 1}}, {"text": "x"}])
def test_what_is_not_understood_is_a_failure(odd: dict):
    with pytest.raises(EngineFailureError):
        NativeStream(request()).read(odd)


def test_what_the_engine_did_not_say_is_not_reported():
    stream = NativeStream(request())
    stream.read(event("x", {"type": "stop"}, prompt_tokens=10))
    assert stream.usage().reuse.status == "not_reported"
