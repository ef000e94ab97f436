"""What each engine's and API's usage means. `None` is `not said`, and 0 is 0."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.reuse import PROFILES, read_usage


def usage(prompt: Any = 100, cached: Any = 64, **more: Any) -> dict:
    details = {} if cached is ... else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": 7, **details, **more}}


def sglang(prompt: int, cached: Any, details: dict) -> dict:
    return {**usage(prompt, cached), "sglext": {"cached_tokens_details": details}}


REPORTED = [
    ("openai", usage(), 100, 64),
    ("openai", usage(cached=0), 100, 0),
    ("openai", {"usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}}}, 9, 0),
    ("sglang", usage(), 100, 64),
    ("sglang", {"meta_info": {"prompt_tokens": 30, "cached_tokens": 29, "completion_tokens": 1}}, 30, 29),
    ("vllm", usage(), 100, 64),
    ("llama_cpp", {"timings": {"cache_n": 40, "prompt_n": 2, "predicted_n": 3}}, 42, 40),
    ("llama_cpp", {**usage(cached=...), "timings": {"cache_n": 0, "prompt_n": 100}}, 100, 0),
    ("deepseek", usage(cached=..., prompt_cache_hit_tokens=64, prompt_cache_miss_tokens=36), 100, 64),
    ("kimi", usage(cached=..., cached_tokens=12), 100, 12),
    ("kimi", usage(), 100, 64),
    ("xai", usage(cached=..., cached_prompt_text_tokens=8), 100, 8),
    ("minimax", usage(cached=..., cache_read_input_tokens=8), 100, 8),
    ("lmdeploy", usage(), 100, 64),
    (
        "anthropic",
        {"usage": {"input_tokens": 10, "cache_read_input_tokens": 50, "cache_creation_input_tokens": 40}},
        100,
        50,
    ),
    ("bedrock", {"usage": {"inputTokens": 10, "cacheReadInputTokens": 0, "cacheWriteInputTokens": 5}}, 15, 0),
    ("bedrock", usage(), 100, 64),
    ("gemini", {"usageMetadata": {"promptTokenCount": 70, "cachedContentTokenCount": 60}}, 70, 60),
    ("gemini", usage(), 100, 64),
]


@pytest.mark.parametrize(("profile", "payload", "prompt", "reused"), REPORTED)
def test_what_is_said_is_reported_with_its_source(profile: str, payload: dict, prompt: int, reused: int):
    read = read_usage(PROFILES[profile], payload)
    assert (read.reuse.status, read.reuse.prompt, read.reuse.reused) == ("reported", prompt, reused)
    assert read.reuse.source


NOT_SAID = [
    ("openai", usage(cached=...)),
    ("openai", usage(cached=None)),
    ("openai", {"usage": None}),
    ("openai", {}),
    ("sglang", usage(cached=...)),
    ("vllm", usage(cached=None)),
    ("vllm", {"usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}}}),
    ("llama_cpp", {**usage(cached=...), "tokens_cached": 99}),
    ("deepseek", usage(cached=..., prompt_cache_miss_tokens=100)),
    ("lmdeploy", usage(cached=0)),
    ("ollama", usage(cached=..., prompt_eval_count=3)),
    ("ollama", {"prompt_eval_count": 3, "eval_count": 9}),
    ("ollama", usage(cached=5)),
    ("anthropic", {"usage": {"input_tokens": 10}}),
    ("bedrock", {"usage": {"inputTokens": 10}}),
    ("bedrock", usage(cached=...)),
    ("gemini", {"usageMetadata": {"promptTokenCount": 70}}),
    ("gemini", usage(cached=...)),
]


@pytest.mark.parametrize(("profile", "payload"), NOT_SAID)
def test_what_is_not_said_is_never_zero(profile: str, payload: dict):
    read = read_usage(PROFILES[profile], payload)
    assert (read.reuse.status, read.reuse.reused, read.reuse.by_tier) == ("not_reported", None, None)


ODD = [
    ("openai", usage(prompt=10, cached=11), 11),
    ("openai", usage(cached=-1), -1),
    ("deepseek", usage(cached=..., prompt_cache_hit_tokens=64, prompt_cache_miss_tokens=64), 64),
    ("sglang", sglang(100, 64, {"device": 10, "host": 10}), 64),
    ("anthropic", {"usage": {"input_tokens": -60, "cache_read_input_tokens": 50}}, 50),
]


@pytest.mark.parametrize(("profile", "payload", "kept"), ODD)
def test_what_cannot_be_true_is_kept_and_flagged(profile: str, payload: dict, kept: int):
    read = read_usage(PROFILES[profile], payload)
    assert (read.reuse.status, read.reuse.reused) == ("inconsistent", kept)


def test_tiers_of_sglang_keep_the_words_of_the_word_table():
    details = {"device": 32, "host": 16, "storage": 16, "storage_backend": "HiCacheFile"}
    assert read_usage(PROFILES["sglang"], sglang(100, 64, details)).reuse.by_tier == {
        "device": 32,
        "host": 16,
        "disk": 16,
    }
    shared = read_usage(PROFILES["sglang"], sglang(100, 64, {**details, "storage_backend": "mooncake"}))
    assert shared.reuse.by_tier == {"device": 32, "host": 16, "store": 16}


def test_tiers_alone_say_how_much_was_reused():
    read = read_usage(PROFILES["sglang"], sglang(100, None, {"device": 32, "host": 16}))
    assert (read.reuse.reused, read.reuse.source) == (48, "sglext.cached_tokens_details")


def test_of_several_prompts_vllm_says_one_ones_hits_which_is_no_sum():
    assert read_usage(PROFILES["vllm"], usage(), prompts=2).reuse.status == "not_reported"
    assert read_usage(PROFILES["openai"], usage(), prompts=2).reuse.reused == 64


def test_completion_and_reasoning_tokens_come_along():
    payload = usage(completion_tokens_details={"reasoning_tokens": 5})
    read = read_usage(PROFILES["openai"], payload)
    assert (read.completion_tokens, read.reasoning_tokens) == (7, 5)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "usage",
                    "prompt_tokens",
                    "prompt_tokens_details",
                    "cached_tokens",
                    "timings",
                    "cache_n",
                    "meta_info",
                    "sglext",
                    "cached_tokens_details",
                    "device",
                    "storage",
                    "input_tokens",
                    "usageMetadata",
                    "message",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(payload=anything, profile=st.sampled_from(sorted(PROFILES)))
def test_any_json_is_read_without_an_exception_and_stays_consistent(payload: object, profile: str):
    reuse = read_usage(PROFILES[profile], payload).reuse
    if reuse.status == "reported":
        assert reuse.reused is not None
        assert reuse.reused >= 0
        assert reuse.prompt is None or reuse.reused <= reuse.prompt
        assert reuse.by_tier is None or sum(reuse.by_tier.values()) == reuse.reused
    else:
        assert (reuse.reused is None) == (reuse.status == "not_reported")
