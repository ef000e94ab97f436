"""Seconds that a computed prompt token takes, read off the traffic itself."""

import numpy as np
from numpy.typing import NDArray

_FEWEST = 9  # requests in all, so that a third is three


def seconds_per_token(computed: NDArray[np.float32], ttft: NDArray[np.float32]) -> float | None:
    """The slope of Tukey's resistant line through TTFT (seconds) against computed tokens, both without NaN.

    Medians of the third with the fewest and the third with the most computed tokens (ties at their edges included):
    waiting in queues moves few of them, and what every request costs beside its prefill is in both, so that it is
    not counted. None: too few requests, or nothing to tell apart.

    Source: J. W. Tukey, Exploratory Data Analysis, 1977, chapter 10.
    """
    if len(computed) < _FEWEST:
        return None
    third = len(computed) // 3
    ranked = np.partition(computed, (third - 1, len(computed) - third))
    low, high = computed <= ranked[third - 1], computed >= ranked[len(computed) - third]
    run = float(np.median(computed[high]) - np.median(computed[low]))
    rise = float(np.median(ttft[high]) - np.median(ttft[low]))
    return rise / run if run > 0 and rise > 0 else None
