"""From what one request did to its row of the ledger."""

from engine_adapters.base import ReuseReport
from engine_adapters.reuse.classes import predicted_within
from gateway.ledger.expectation import Expectation, Predictor
from gateway.ledger.row import GapCause, LedgerRow
from gateway.routing.explained import scores_json
from gateway.transport.record import RequestRecord


def row_of(record: RequestRecord, predictor: Predictor | None = None) -> LedgerRow:
    """The row of a request that has ended."""
    reuse, canon, expected = record.reuse, record.canon, record.expected.known()
    prompt = record.prompt_tokens if reuse is None or reuse.prompt is None else reuse.prompt
    # By place, in the order of the fields: binding so many names takes as long as all the rest.
    return LedgerRow(
        record.id,
        record.tenant.name,
        record.model or "",
        record.route or "",
        record.engine,
        record.replica,
        record.arrival,
        None if record.ttft_s is None else record.arrival + record.ttft_s,  # first_token
        record.arrival + record.seconds,  # end
        bool(record.stream),
        record.status or 0,
        prompt,
        None if reuse is None else reuse.reused,
        {} if reuse is None or reuse.by_tier is None else dict(reuse.by_tier),  # by_tier
        record.matched_tokens,
        record.completion_tokens,
        record.reasoning_tokens,
        "not_reported" if reuse is None else reuse.status,
        "" if reuse is None else reuse.source,
        predicted_within(expected.predicted, prompt, record.block_size),
        record.block_size,
        _gap_cause(expected, reuse, predictor),  # gap_cause
        "off" if canon is None else canon.policy,
        None if canon is None else canon.rules_version,
        0 if canon is None or not canon.applied else sum(canon.edits.values()),  # canon_edits
        expected.saved,  # canon_saved
        expected.divergence,
        record.retries,
        record.attempts,
        None if record.routed is None else record.routed.reason,
        scores_json(record.routed),
        record.finish,
        record.error,
        record.trace.trace_id,
    )


def _gap_cause(
    expected: Expectation, reuse: ReuseReport | None, predictor: Predictor | None
) -> GapCause | None:
    return None if predictor is None or reuse is None else predictor.cause(expected, reuse)
