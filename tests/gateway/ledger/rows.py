"""Rows for tests: any row at all, and plain ones by number."""

from hypothesis import strategies as st

from gateway.ledger import Divergence, LedgerRow
from gateway.ledger.encoding import STATUSES, TIERS

_texts = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=200)
_counts = st.none() | st.integers(0, 2**31 - 1)
_signed = st.none() | st.integers(-(2**31) + 1, 2**31 - 1)
_times = st.floats(0, 4e9)
_gaps = st.sampled_from(["evicted", "other replica", "template mismatch", "salt", "partial block", "unknown"])

any_row = st.builds(
    LedgerRow,
    id=_texts,
    tenant=_texts,
    model=_texts,
    route=_texts,
    engine=st.none() | _texts,
    replica=st.none() | _texts,
    arrival=_times,
    first_token=st.none() | _times,
    end=st.none() | _times,
    stream=st.booleans(),
    status=st.integers(0, 599),
    prompt=_counts,
    reused=_counts,
    by_tier=st.dictionaries(st.sampled_from(TIERS), st.integers(0, 2**31 - 1)),
    matched=_counts,
    completion=_counts,
    reasoning=_counts,
    reuse_status=st.sampled_from(STATUSES),
    reuse_source=_texts,
    predicted=_counts,
    block_size=_counts,
    gap_cause=st.none() | _gaps,
    canon_policy=_texts,
    canon_rules=_counts,
    canon_edits=st.integers(0, 2**31 - 1),
    canon_saved=_signed,
    divergence=st.none() | st.builds(Divergence, _texts, st.integers(0, 2**31 - 1), _texts, _texts),
    retries=st.integers(0, 2**31 - 1),
    attempts=_counts,
    route_reason=st.none() | _texts,
    route_scores=st.none() | _texts,
    finish=st.none() | _texts,
    error=st.none() | _texts,
    trace_id=st.none() | _texts,
)


def row(number: int, tenant: str = "default", arrival: float | None = None) -> LedgerRow:
    """A row that reported; its id is its number."""
    at = 1_000.0 + number if arrival is None else arrival
    return LedgerRow(
        str(number),
        tenant,
        "model",
        "chat",
        arrival=at,
        first_token=at + 0.5,
        end=at + 2,
        status=200,
        prompt=100 + number,
        reused=number,
        reuse_status="reported",
    )
