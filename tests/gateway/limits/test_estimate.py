"""What a request may take is guessed from its bytes and bounds, whatever stands in it."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.estimate import ASSUMED_COMPLETION, MEDIUM_TOKENS, MOST, Estimate, estimate


def of(body: dict[str, Any], route: str = "completions") -> Estimate:
    return estimate(route, orjson.dumps(body), body)


@pytest.mark.parametrize(
    ("body", "completion"),
    [
        ({}, ASSUMED_COMPLETION),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": 7, "n": 3}, 21),
        ({"max_tokens": 7, "prompt": ["a", "b"]}, 14),
        ({"max_tokens": 7, "prompt": [1, 2, 3]}, 7),
        ({"max_tokens": 7, "prompt": [[1, 2, 3], [4]]}, 14),
        ({"max_tokens": 7, "n": 2, "best_of": 5, "prompt": ["a", "b"]}, 70),
        ({"max_tokens": "many"}, ASSUMED_COMPLETION),
        ({"max_tokens": True}, ASSUMED_COMPLETION),
        ({"max_tokens": -5, "n": -1}, ASSUMED_COMPLETION),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": 1 << 60, "n": 1 << 60, "prompt": ["a"] * 9}, MOST),
    ],
)
def test_the_completion_is_what_the_request_bounds_it_to(body: dict[str, Any], completion: int) -> None:
    assert of(body).completion == completion


def test_a_picture_in_the_body_is_no_text() -> None:
    text = {"messages": [{"role": "user", "content": "x" * 400}]}
    picture = {"url": "data:image/png;base64," + "A" * 1_000_000}
    assert of({**text, "image": picture}).prompt == pytest.approx(of(text).prompt + MEDIUM_TOKENS, abs=20)


def test_routes_without_a_completion_have_none_and_those_without_a_model_cost_nothing() -> None:
    body = {"input": "x" * 400, "max_tokens": 50}
    assert of(body, "embeddings").completion == 0
    assert of(body, "embeddings").prompt > 100
    assert of(body, "tokenize").total == 0


def test_token_ids_are_counted_however_few_bytes_they_take() -> None:
    ids = [number % 10 for number in range(1000)]
    for body in ({"prompt": ids}, {"prompt": [ids[:400], ids[400:]]}):
        assert 1000 <= of(body).prompt < 1100
    assert 1000 <= of({"input": ids}, "embeddings").prompt < 1100


def test_a_query_is_read_once_for_each_document() -> None:
    body = {"query": "q" * 4000, "documents": ["d" * 40] * 100}
    assert of(body, "rerank").prompt == pytest.approx(100 * (1000 + 10), rel=0.1)
    assert of({**body, "query": {"content": []}}, "rerank").prompt < 2000


@given(
    route=st.sampled_from(["chat", "completions", "embeddings", "rerank"]),
    raw=st.binary(max_size=300),
    body=st.dictionaries(
        st.sampled_from(["n", "best_of", "prompt", "input", "query", "documents", "texts", "max_tokens"]),
        st.from_type(object) | st.lists(st.integers() | st.lists(st.integers()) | st.text()),
    ),
)
def test_nothing_in_a_body_makes_it_fail(route: str, raw: bytes, body: dict[str, Any]) -> None:
    found = estimate(route, raw, body)
    assert found.prompt >= 0
    assert found.completion >= 0
