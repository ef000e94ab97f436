"""Classes of requests: bounds, and what is not known is a class of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.base import ReuseReport, ReuseStatus
from engine_adapters.reuse.classes import ReuseClass, predicted_within, reusable_tokens, reuse_class


def report(prompt: int | None, reused: int | None, status: ReuseStatus = "reported") -> ReuseReport:
    return ReuseReport(prompt, reused, None, "test", status)


@pytest.mark.parametrize(
    ("prompt", "reused", "block", "wanted"),
    [
        (1601, 0, 16, "cold"),
        (1601, 15, None, "cold"),  # 0.94 % of 1600
        (1601, 16, 16, "partial"),  # 1 %
        (1601, 1568, 16, "partial"),  # 98 %
        (1601, 1584, 16, "warm"),  # 99 %
        (1616, 1600, 16, "warm"),  # the last block holds the last token, which is always computed
        (16, 0, 16, "too_short"),
        (17, 0, 16, "cold"),
        (1, 0, None, "too_short"),
        (2, 1, None, "warm"),
    ],
)
def test_a_class_is_the_share_of_what_could_be_reused(
    prompt: int, reused: int, block: int | None, wanted: ReuseClass
) -> None:
    assert reuse_class(report(prompt, reused), block) == wanted


def test_what_is_not_known_is_no_cold_request() -> None:
    assert reuse_class(None, 16) == "not_reported"
    assert reuse_class(report(100, None, "not_reported"), 16) == "not_reported"
    assert reuse_class(report(None, 5), 16) == "not_reported"
    assert reuse_class(report(100, 0, "inconsistent"), 16) == "inconsistent"
    assert reuse_class(report(100, 101), 16) == "inconsistent"


@given(st.integers(0, 10_000), st.integers(1, 512))
def test_reusable_are_whole_blocks_and_never_the_last_token(prompt: int, block: int) -> None:
    reusable = reusable_tokens(prompt, block)
    assert reusable % block == 0
    assert prompt == reusable == 0 or prompt - block - 1 < reusable < prompt


@pytest.mark.parametrize(
    ("predicted", "prompt", "block", "told"),
    [
        (122, 121, 1, 120),
        (122, 121, 16, 112),
        (96, 121, 16, 96),
        (0, 1, None, 0),
        (5, None, 16, 5),
        (None, 9, 1, None),
    ],
)
def test_a_prediction_is_told_as_far_as_it_can_be_true(
    predicted: int | None, prompt: int | None, block: int | None, told: int | None
):
    assert predicted_within(predicted, prompt, block) == told
