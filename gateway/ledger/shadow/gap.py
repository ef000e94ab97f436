"""Why an engine reused less than its shadow had."""

import msgspec

from engine_adapters.base import ReuseReport
from gateway.ledger.row import GapCause


class Sent(msgspec.Struct, frozen=True):
    """What the shadow knew of one request when it was sent. Tokens are the shadow's own: ids, or bytes / 4."""

    engine: str
    number: int
    scope: str
    block_size: int
    prompt: int
    reused: int  # by its text alone
    salted: int  # by text and salts
    switched: int  # by text and switches of the template
    elsewhere: int  # by its text, had all engines one cache
    counted: bool  # the tokens are the engine's own ids, not estimated
    running: bool  # the request that it shares most with had not ended


def gap_cause(sent: Sent, reuse: ReuseReport) -> GapCause | None:
    """The likeliest cause; None: nothing is missing, or the engine did not say, or it is within an estimate's error."""
    if reuse.status != "reported" or reuse.reused is None or not reuse.prompt or not sent.prompt:
        return None
    expected = _in_tokens(sent, sent.reused, reuse.prompt)
    anywhere = _in_tokens(sent, max(sent.reused, sent.elsewhere), reuse.prompt)
    error = 0 if sent.counted else expected // 10
    gap = expected - reuse.reused
    if gap <= 0 or sent.block_size < gap <= error:
        return "other replica" if anywhere - reuse.reused > max(error, sent.block_size) else None
    if sent.counted and reuse.prompt != sent.prompt:
        return "template mismatch"  # the engine made another prompt of it than this gateway
    if gap <= sent.block_size:
        return "partial block"
    if sent.salted < sent.reused:
        return "salt"
    if sent.switched < sent.reused:
        return "template mismatch"
    return "unknown" if sent.running else "evicted"


def _in_tokens(sent: Sent, estimated: int, prompt: int) -> int:
    """Whole blocks of the engine's own tokens, without the last one, which is computed in any case."""
    tokens = estimated if sent.counted else estimated * prompt // sent.prompt
    return min(tokens, max(prompt - 1, 0)) // sent.block_size * sent.block_size
