"""Live metrics and reports over the ledger put a request into the same class."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.base import ReuseReport, ReuseStatus
from engine_adapters.reuse.classes import reuse_class
from gateway.ledger.encoding import STATUSES
from gateway.reports.rows.classes import CLASSES, classify, reusable

_TOKENS = st.none() | st.integers(0, 300)


@given(_TOKENS, _TOKENS, st.none() | st.sampled_from([1, 16, 64]), st.sampled_from(STATUSES))
def test_one_request_has_one_class(
    prompt: int | None, reused: int | None, block: int | None, status: ReuseStatus
) -> None:
    def column(value: int | None) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([np.nan if value is None else value], dtype=np.float64)

    could = reusable(column(prompt), column(block))
    said = np.array([STATUSES.index(status)], dtype=np.int32)
    (place,) = classify(column(prompt), column(reused), could, said, column(200))
    live = reuse_class(ReuseReport(prompt, reused, None, "test", status), block)
    assert live == CLASSES[place].replace(" ", "_")
