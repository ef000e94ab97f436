"""From what one request did to its row of the ledger."""

from engine_adapters.reuse.classes import predicted_within
from gateway.ledger.expectation import Predictor
from gateway.ledger.row import GapCause, LedgerRow
from gateway.routing.explained import scores_json
from gateway.transport.record import RequestRecord


def row_of(record: RequestRecord, predictor: Predictor | None = None) -> LedgerRow:
    """The row of a request that has ended."""
    reuse, canon, expected = record.reuse, record.canon, record.expected
    prompt = record.prompt_tokens if reuse is None or reuse.prompt is None else reuse.prompt
    return LedgerRow(
        id=record.id,
        tenant=record.tenant.name,
        model=record.model or "",
        route=record.route or "",
        engine=record.engine,
        replica=record.replica,
        arrival=record.arrival,
        first_token=None if record.ttft_s is None else record.arrival + record.ttft_s,
        end=record.arrival + record.seconds,
        stream=bool(record.stream),
        status=record.status or 0,
        prompt=prompt,
        reused=None if reuse is None else reuse.reused,
        by_tier={} if reuse is None or reuse.by_tier is None else dict(reuse.by_tier),
        matched=record.matched_tokens,
        completion=record.completion_tokens,
        reasoning=record.reasoning_tokens,
        reuse_status="not_reported" if reuse is None else reuse.status,
        reuse_source="" if reuse is None else reuse.source,
        predicted=predicted_within(expected.predicted, prompt, record.block_size),
        block_size=record.block_size,
        gap_cause=_gap_cause(record, predictor),
        canon_policy="off" if canon is None else canon.policy,
        canon_rules=None if canon is None else canon.rules_version,
        canon_edits=0 if canon is None or not canon.applied else sum(canon.edits.values()),
        canon_saved=expected.saved,
        divergence=expected.divergence,
        retries=record.retries,
        attempts=record.attempts,
        route_reason=None if record.routed is None else record.routed.reason,
        route_scores=scores_json(record.routed),
        finish=record.finish,
        error=record.error,
        trace_id=record.trace.trace_id,
    )


def _gap_cause(record: RequestRecord, predictor: Predictor | None) -> GapCause | None:
    if predictor is None or record.reuse is None:
        return None
    return predictor.cause(record.expected, record.reuse)
