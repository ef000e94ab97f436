"""What cannot be true is found, and ordinary traffic is left in peace."""

import pytest
from msgspec.structs import replace

from gateway.ledger import LedgerRow
from tests.gateway.reports.audit.test_audit import audited

GOOD = LedgerRow(
    "1", "t", "m", "chat", engine="e", arrival=9_000.0, status=200, prompt=100, reused=48, block_size=16,
    reuse_status="reported", reuse_source="usage",
)  # fmt: skip
SILENT = replace(GOOD, reused=None, reuse_status="not_reported")


def rules(rows: list[LedgerRow]) -> list[str]:
    return [finding.rule for finding in audited(rows).findings]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([replace(GOOD, reused=48 + 16 * (i % 3)) for i in range(30)], []),
        ([replace(GOOD, reused=101, reuse_status="inconsistent")], ["cached-over-prompt"]),
        ([replace(GOOD, by_tier={"device": 16, "host": 16})], ["tiers-do-not-add-up"]),
        ([replace(GOOD, by_tier={"device": 16, "host": 32})], []),
        ([replace(GOOD, matched=32)], ["reused-over-matched"]),
        ([replace(GOOD, matched=64)], []),
        ([replace(GOOD, reused=50)], ["no-block-multiple"]),
        ([replace(GOOD, reused=50, block_size=None)], []),
        (
            [replace(GOOD, prompt=50 + i, reused=49 + i, block_size=1) for i in range(20)],
            ["prompt-minus-one"],
        ),
        ([replace(GOOD, prompt=50 + i, reused=49 + i, block_size=1) for i in range(20)] + [GOOD], []),
        ([replace(GOOD, reused=0, predicted=64)] * 20, ["always-zero"]),
        ([replace(GOOD, reused=0, predicted=64)] * 20 + [GOOD], []),
        ([replace(GOOD, reused=0, predicted=0)] * 20, []),
        ([SILENT], ["not-reported"]),
        ([replace(SILENT, stream=True)] * 20 + [GOOD] * 20, ["stream-and-whole-differ"]),
        ([replace(GOOD, stream=True)] * 20 + [SILENT] * 20, ["stream-and-whole-differ"]),
        ([replace(SILENT, stream=True)] * 20 + [SILENT] * 20 + [GOOD], ["not-reported"]),
        (
            [replace(GOOD, stream=True, reused=0, predicted=64)] * 20 + [replace(GOOD, predicted=64)] * 20,
            ["stream-and-whole-differ"],
        ),
        (
            [replace(GOOD, reused=0, predicted=64)] * 20 + [replace(GOOD, stream=True, predicted=64)] * 20,
            ["stream-and-whole-differ"],
        ),
        ([replace(GOOD, stream=True, reused=0, predicted=0)] * 20 + [replace(GOOD, predicted=64)] * 20, []),
        (
            [replace(GOOD, stream=True, reused=0, predicted=64)] * 20
            + [replace(GOOD, predicted=64)] * 20
            + [replace(GOOD, stream=True, predicted=64)],
            [],
        ),
        ([replace(GOOD, stream=True, reused=0, predicted=64)] * 20 + [replace(GOOD, predicted=64)] * 19, []),
        ([replace(GOOD, status=500, reused=None, reuse_status="not_reported")], []),
    ],
)
def test_each_sickness_has_its_finding(rows: list[LedgerRow], wanted: list[str]):
    assert rules(rows) == wanted


def test_engines_are_judged_apart():
    zero = [replace(GOOD, engine="z", reused=0, predicted=64)] * 20
    found = audited(zero + [GOOD] * 20).findings
    assert [(finding.rule, finding.engine) for finding in found] == [("always-zero", "z")]
