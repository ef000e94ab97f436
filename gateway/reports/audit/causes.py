"""Why tokens that could have been reused were computed again."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gateway.ledger import Columns
from gateway.reports.audit.report import LostReuse
from gateway.reports.rows.facts import Facts

NOT_TOLD = "new text"
ESTIMATED = "estimate"  # the ledger found no cause, since an estimate may be wrong by as much


class LostReuseCauses:
    """Adds up causes. Of what was lost, the part that was expected to hit has the gap's cause, the rest the
    divergence's: where the prompt left the nearest earlier one. Both parts together are all that was lost."""

    def __init__(self) -> None:
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._requests: Counter[tuple[str, str]] = Counter()

    def add(self, chunk: Columns, facts: Facts) -> None:
        """Rows of one chunk."""
        lost = np.where(facts.consistent, np.maximum(facts.could - facts.reused, 0), 0.0)
        expected = np.minimum(facts.predicted, facts.could) - facts.reused
        gap = np.where(facts.consistent, np.nan_to_num(np.maximum(expected, 0)), 0.0)
        self._count(chunk, "gap_cause", "gap", ESTIMATED, gap)
        self._count(chunk, "divergence_cause", "divergence", NOT_TOLD, lost - gap)

    def _count(
        self, chunk: Columns, column: str, kind: str, otherwise: str, tokens: NDArray[np.float64]
    ) -> None:
        codes = chunk.codes[column].astype(np.int64) + 1
        totals = np.bincount(codes, tokens)
        requests = np.bincount(codes, tokens > 0)
        for code in np.flatnonzero(totals):
            key = (kind, otherwise if code == 0 else chunk.labels[column][code - 1])
            self._tokens[key] += int(totals[code])
            self._requests[key] += int(requests[code])

    def dearest(self) -> list[LostReuse]:
        """Most tokens first."""
        ordered = sorted(self._tokens.items(), key=lambda item: (-item[1], item[0]))
        return [LostReuse(kind, cause, n, self._requests[kind, cause]) for (kind, cause), n in ordered]
