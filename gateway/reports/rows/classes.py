"""Which class a request is in. Figures of two classes are never averaged."""

import numpy as np
from numpy.typing import NDArray

from gateway.ledger.encoding import STATUSES

CLASSES = ("cold", "partial", "warm", "too short", "not reported", "inconsistent", "failed")
COLD, PARTIAL, WARM, TOO_SHORT, NOT_REPORTED, INCONSISTENT, FAILED = range(len(CLASSES))
CONSISTENT = (COLD, PARTIAL, WARM, TOO_SHORT)  # what the reuse rate is taken over

_REPORTED = STATUSES.index("reported")
_INCONSISTENT = STATUSES.index("inconsistent")


def reusable(prompt: NDArray[np.float64], block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens of each prompt that could be reused: floor((prompt - 1) / block) x block; block NaN: 1. NaN: not known."""
    tokens = np.where(block >= 1, block, 1.0)
    return np.floor((prompt - 1) / tokens) * tokens


def classify(
    prompt: NDArray[np.float64],
    reused: NDArray[np.float64],
    could: NDArray[np.float64],
    said: NDArray[np.int32],
    status: NDArray[np.float64],
) -> NDArray[np.int8]:
    """A place in `CLASSES` for each request.

    Args:
        prompt, reused: tokens; NaN: not said.
        could: as `reusable` gives it.
        said: places in `STATUSES`.
        status: HTTP's; 0: there was no answer.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        share = reused / could
        odd = (said == _INCONSISTENT) | ((said == _REPORTED) & ((reused > prompt) | (reused < 0)))
        silent = (said != _REPORTED) | np.isnan(reused) | np.isnan(prompt)
        return np.select(
            [(status >= 400) | (status == 0), odd, silent, could <= 0, share < 0.01, share >= 0.99],
            [FAILED, INCONSISTENT, NOT_REPORTED, TOO_SHORT, COLD, WARM],
            PARTIAL,
        ).astype(np.int8)
