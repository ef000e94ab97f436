from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.base import ReuseReport
from gateway.ledger.expectation import NOTHING_EXPECTED, Expectation, SentRequest
from gateway.ledger.shadow import ShadowPredictor

LONG = "The harbour office answers questions about ferries, berths and tides. " * 40


def chat(*turns: str, system: str = LONG, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *said], **fields}


def sent(
    body: Mapping[str, Any], engine: str = "e", came: Mapping[str, Any] | None = None, **fields: Any
) -> SentRequest:
    return SentRequest(engine, fields.pop("scope", "t/m"), came or body, body, 0, **fields)


def reported(prompt: int, reused: int | None) -> ReuseReport:
    status = "not_reported" if reused is None else "reported"
    return ReuseReport(prompt, reused, None, "test", status)  # type: ignore[arg-type]


def tokens(*parts: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Runs of 32 equal ids."""
    return np.repeat(np.array(parts, np.int32), 32)


def test_the_first_prompt_is_expected_cold_and_its_repetition_warm() -> None:
    predictor = ShadowPredictor()
    assert predictor.expect(sent(chat("hello"))).predicted == 0
    predicted = predictor.expect(sent(chat("hello"))).predicted
    assert predicted is not None
    assert 0.9 * len(LONG) / 4 < predicted <= (len(LONG) + 100) / 4
    assert predicted % 16 == 0


def test_prompts_of_token_ids_are_counted_exactly_in_blocks_of_the_engine() -> None:
    predictor = ShadowPredictor()
    one = sent({"prompt": "x"}, tokens=tokens(1, 2, 3, 4), block_size=64)
    assert predictor.expect(one).predicted == 0
    other = sent({"prompt": "x"}, tokens=tokens(1, 2, 3, 5), block_size=64)
    assert predictor.expect(other).predicted == 64
    again = predictor.expect(one).predicted
    assert again == 64, "the last token is computed in any case, and its block with it"


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=80), min_size=1, max_size=12),
    block=st.sampled_from([1, 3, 16]),
)
def test_prediction_is_what_a_cache_that_forgets_nothing_reuses(prompts: list[list[int]], block: int) -> None:
    predictor, before = ShadowPredictor(), list[list[int]]()
    for prompt in prompts:
        ids = np.array(prompt, np.int32)
        got = predictor.expect(sent({"prompt": "x"}, tokens=ids, block_size=block)).predicted
        shared = max((_common(prompt, other) for other in before), default=0)
        want = min(shared, len(prompt) - 1) // block * block
        assert got == want
        before.append(prompt)


def _common(a: list[int], b: list[int]) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_scopes_and_engines_share_nothing() -> None:
    predictor = ShadowPredictor()
    predictor.expect(sent(chat("hello")))
    assert predictor.expect(sent(chat("hello"), scope="other/m")).predicted == 0
    assert predictor.expect(sent(chat("hello"), engine="f")).predicted == 0


def test_prediction_learns_how_many_tokens_the_engine_makes_of_text() -> None:
    predictor = ShadowPredictor()
    first = predictor.expect(sent(chat("hello")))
    predictor.cause(first, reported(1400, 0))  # twice of what four bytes a token make
    predicted = predictor.expect(sent(chat("hello"))).predicted
    assert predicted is not None
    assert 1200 < predicted < 1400


def test_what_is_past_the_engines_kv_is_not_expected() -> None:
    predictor = ShadowPredictor()
    few = {"block_size": 16, "cache_tokens": 640}
    predictor.expect(sent({"prompt": "x"}, tokens=tokens(1, 2), **few))
    for other in range(100, 140):
        predictor.expect(sent({"prompt": "x"}, tokens=tokens(other, 2), **few))
    assert predictor.expect(sent({"prompt": "x"}, tokens=tokens(1, 2), **few)).predicted == 0


def test_what_is_used_again_and_again_is_not_forgotten() -> None:
    predictor = ShadowPredictor()
    requests = [
        sent({"prompt": "x"}, tokens=tokens(1, other), block_size=16, cache_tokens=640)
        for other in range(100, 200)
    ]
    assert [predictor.expect(each).predicted for each in requests] == [0] + [32] * 99


def test_several_prompts_in_one_request_are_not_predicted() -> None:
    predictor = ShadowPredictor()
    for prompt in (["a" * 90, "b"], [[1, 2], [3]]):
        assert predictor.expect(sent({"prompt": prompt})) == NOTHING_EXPECTED


@pytest.mark.parametrize(
    "body", [{}, {"messages": None}, {"messages": [7, None]}, {"messages": [{"role": {}}]}]
)
def test_bodies_of_any_shape_raise_nothing(body: dict[str, Any]) -> None:
    predictor = ShadowPredictor()
    predictor.expect(sent(body))
    predictor.expect(sent(body))
    assert predictor.failed == 0


def test_edits_that_make_prompts_equal_are_counted_as_saved() -> None:
    predictor = ShadowPredictor()
    edited = chat("hello")
    came = [chat("hello", system=f"It is 10:0{n}.\n{LONG}") for n in range(3)]
    saved = [predictor.expect(sent(edited, came=each)).saved for each in came]
    assert saved[0] == 0
    assert saved[1] is not None
    assert saved[1] > 0.9 * len(LONG) / 4


def test_without_edits_nothing_is_said_to_be_saved() -> None:
    assert ShadowPredictor().expect(sent(chat("hello"))).saved is None


# Divergence


def test_a_clock_in_the_system_prompt_is_where_it_diverges() -> None:
    predictor = ShadowPredictor()
    predictor.expect(sent(chat("hello", system=f"Hello.\nThe time is 2026-03-01 10:00:00.\n{LONG}")))
    told = predictor.expect(
        sent(chat("other", system=f"Hello.\nThe time is 2026-03-01 10:05:00.\n{LONG}"))
    ).divergence
    assert told is not None
    assert told.path == "messages[0].content"
    assert 7 <= told.offset < 7 + len("The time is 2026-03-01 10:05")
    assert told.cause.startswith("another ")
    assert len(told.prefix_hash) == 32


def test_a_head_of_one_line_is_found_again_by_how_it_begins_and_ends() -> None:
    predictor = ShadowPredictor()
    said = [predictor.expect(sent(chat("hi", system=f"Rules. It is 10:0{n} now. {LONG}"))) for n in range(2)]
    assert said[0].divergence is None
    told = said[1].divergence
    assert told is not None
    assert (told.path, told.offset, told.cause) == ("messages[0].content", 13, "another clock")


def test_an_unrelated_head_is_no_divergence() -> None:
    predictor = ShadowPredictor()
    predictor.expect(sent(chat("hi there, what is it?", system=f"{LONG} Be brief and polite.")))
    other = chat("sing of the sea", system=f"{'A poet answers in rhymes.' * 40} Be brief and polite.")
    assert predictor.expect(sent(other)).divergence is None


def test_the_offset_is_counted_from_the_start_of_a_long_text() -> None:
    predictor = ShadowPredictor()
    texts = [f"{LONG}\nserver build {n}\n{LONG}" for n in ("alpha", "omega")]
    predictor.expect(sent(chat("hello", system=texts[0])))
    told = predictor.expect(sent(chat("hello", system=texts[1]))).divergence
    assert told is not None
    assert texts[1][told.offset :].startswith("omega")


def test_conversations_that_go_on_or_begin_anew_do_not_diverge() -> None:
    predictor = ShadowPredictor()
    predictor.expect(sent(chat("hello", "hi, what is it?", "the tide")))
    grown = chat("hello", "hi, what is it?", "the tide", "high at noon", "thanks")
    assert predictor.expect(sent(grown)).divergence is None
    assert predictor.expect(sent(chat("an entirely different question about berths"))).divergence is None


def test_no_text_of_a_prompt_is_in_what_is_told() -> None:
    predictor = ShadowPredictor()
    predictor.expect(sent(chat("hello", system=f"secret-one\n{LONG}")))
    told = predictor.expect(sent(chat("hello", system=f"secret-two\n{LONG}")))
    assert told.divergence is not None
    assert "secret" not in repr((told.divergence, told.token))


# Causes of gaps


def expectations(predictor: ShadowPredictor, *requests: SentRequest, ended: bool = True) -> Expectation:
    """Of the last request; the others have ended as predicted."""
    for request in requests[:-1]:
        before = predictor.expect(request)
        if ended:
            predictor.cause(before, reported(128, before.predicted))
    return predictor.expect(requests[-1])


def ids(*parts: int, body: dict[str, Any] | None = None, engine: str = "e") -> SentRequest:
    return sent(body or {"prompt": "x"}, engine, tokens=tokens(*parts), block_size=16)


def test_nothing_missing_has_no_cause() -> None:
    predictor = ShadowPredictor()
    last = expectations(predictor, ids(1, 2, 3, 4), ids(1, 2, 3, 4))
    assert last.predicted == 112
    assert predictor.cause(last, reported(128, 112)) is None
    assert predictor.cause(last, reported(128, 127)) is None
    assert predictor.cause(last, reported(128, None)) is None


def test_what_was_sent_and_is_gone_was_evicted() -> None:
    predictor = ShadowPredictor()
    last = expectations(predictor, ids(1, 2, 3, 4), ids(1, 2, 3, 4))
    assert predictor.cause(last, reported(128, 32)) == "evicted"


def test_less_than_a_block_is_a_partial_block() -> None:
    predictor = ShadowPredictor()
    last = expectations(predictor, ids(1, 2, 3, 4), ids(1, 2, 3, 4))
    assert predictor.cause(last, reported(128, 100)) == "partial block"


def test_another_salt_is_the_salt() -> None:
    predictor = ShadowPredictor()
    bodies = [{"prompt": "x", "cache_salt": salt} for salt in ("a", "b")]
    last = expectations(predictor, *(ids(1, 2, 3, 4, body=body) for body in bodies))
    assert predictor.cause(last, reported(128, 0)) == "salt"
    assert last.divergence is not None
    assert (last.divergence.path, last.divergence.cause) == ("cache_salt", "another cache salt")


def test_another_switch_of_the_template_is_a_template_mismatch() -> None:
    predictor = ShadowPredictor()
    bodies = [chat("q", chat_template_kwargs={"enable_thinking": on}) for on in (True, False)]
    last = expectations(predictor, *(sent(body, block_size=16) for body in bodies))
    assert predictor.cause(last, reported(700, 0)) == "template mismatch"


def test_a_prompt_of_another_length_than_ours_is_a_template_mismatch() -> None:
    predictor = ShadowPredictor()
    last = expectations(predictor, ids(1, 2, 3, 4), ids(1, 2, 3, 4))
    assert predictor.cause(last, reported(140, 0)) == "template mismatch"


def test_what_only_another_engine_was_sent_is_the_other_replica() -> None:
    predictor = ShadowPredictor()
    last = expectations(predictor, ids(1, 2, 3, 4, engine="f"), ids(9), ids(1, 2, 3, 4))
    assert last.predicted == 0
    assert predictor.cause(last, reported(128, 0)) == "other replica"


def test_while_the_earlier_one_still_runs_the_cause_is_unknown() -> None:
    predictor = ShadowPredictor()
    last = expectations(predictor, ids(1, 2, 3, 4), ids(1, 2, 3, 4), ended=False)
    assert predictor.cause(last, reported(128, 0)) == "unknown"


def test_an_estimates_own_error_is_no_gap() -> None:
    predictor = ShadowPredictor()
    first = predictor.expect(sent(chat("hello"), block_size=16))
    predictor.cause(first, reported(700, 0))
    last = predictor.expect(sent(chat("hello"), block_size=16))
    assert last.predicted is not None
    assert predictor.cause(last, reported(700, last.predicted - 40)) is None
    assert predictor.cause(last, reported(700, 100)) == "evicted"
