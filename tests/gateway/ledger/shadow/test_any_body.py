"""Whatever is in a body, it is predicted, and told without its text."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.base import ReuseReport
from gateway.ledger.encoding import decoded, encoded
from gateway.ledger.expectation import SentRequest
from gateway.ledger.row import LedgerRow
from gateway.ledger.shadow import ShadowPredictor, ShadowSettings

_words = st.sampled_from(
    ["Monday 10:00\n", "a line of rules that stays\n" * 3, "\ud800", "x", '{"a": 1}', ""]
)
_texts = st.lists(_words, max_size=5).map("".join)
_any = st.recursive(
    _texts | st.integers() | st.none() | st.booleans() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
_parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "tool_use"]), "text": _texts | _any}
)
_message = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]) | _any,
        "content": _texts | st.lists(_parts) | _any,
    },
    optional={"tool_calls": _any, "tool_call_id": _texts, "reasoning_content": _texts},
)
_bodies = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(_message, max_size=5) | _any,
        "tools": st.lists(st.fixed_dictionaries({"function": _any | st.fixed_dictionaries({"name": _texts})}))
        | _any,
        "prompt": _texts | _any,
        "input": _texts | _any,
        "instructions": _any,
        "system": _any,
        "cache_salt": st.sampled_from(["a", "b"]) | _any,
        "chat_template_kwargs": _any,
    },
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_bodies, _bodies, st.booleans()), min_size=1, max_size=6), st.integers(0, 5_000))
def test_it_never_fails_and_predicts_within_the_prompt(
    requests: list[tuple[dict[str, Any], dict[str, Any], bool]], memory: int
) -> None:
    predictor = ShadowPredictor(ShadowSettings(blocks=50, prompt_bytes=memory))
    for came, sent, edited in requests:
        expected = predictor.expect(SentRequest("e", "s", came if edited else sent, sent, 0, 16))
        assert predictor.failed == 0
        assert expected.predicted is None or expected.predicted % 16 == 0
        predictor.cause(expected, ReuseReport(160, 32, None, "test", "reported"))
        row = LedgerRow("id", "t", "m", "chat", predicted=expected.predicted, divergence=expected.divergence)
        assert decoded(encoded(row)).predicted == expected.predicted
