"""What cannot be true is found, and ordinary traffic is left in peace."""

import pytest

from gateway.ledger import LedgerRow
from tests.gateway.reports.audit.test_audit import audited

GOOD = LedgerRow(
    "1", "t", "m", "chat", engine="e", arrival=9_000.0, status=200, prompt=100, reused=48, block_size=16,
    reuse_status="reported", reuse_source="usage",
)  # fmt: skip
SILENT = GOOD._replace(reused=None, reuse_status="not_reported")


def rules(rows: list[LedgerRow]) -> list[str]:
    return [finding.rule for finding in audited(rows).findings]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([GOOD._replace(reused=48 + 16 * (i % 3)) for i in range(30)], []),
        ([GOOD._replace(reused=101, reuse_status="inconsistent")], ["cached-over-prompt"]),
        ([GOOD._replace(by_tier={"device": 16, "host": 16})], ["tiers-do-not-add-up"]),
        ([GOOD._replace(by_tier={"device": 16, "host": 32})], []),
        ([GOOD._replace(matched=32)], ["reused-over-matched"]),
        ([GOOD._replace(matched=64)], []),
        ([GOOD._replace(reused=50)], ["no-block-multiple"]),
        ([GOOD._replace(reused=50, block_size=None)], []),
        (
            [GOOD._replace(prompt=50 + i, reused=49 + i, block_size=1) for i in range(20)],
            ["prompt-minus-one"],
        ),
        ([GOOD._replace(prompt=50 + i, reused=49 + i, block_size=1) for i in range(20)] + [GOOD], []),
        ([GOOD._replace(reused=0, predicted=64)] * 20, ["always-zero"]),
        ([GOOD._replace(reused=0, predicted=64)] * 20 + [GOOD], []),
        ([GOOD._replace(reused=0, predicted=0)] * 20, []),
        ([SILENT], ["not-reported"]),
        ([SILENT._replace(stream=True)] * 20 + [GOOD] * 20, ["stream-and-whole-differ"]),
        ([GOOD._replace(stream=True)] * 20 + [SILENT] * 20, ["stream-and-whole-differ"]),
        ([SILENT._replace(stream=True)] * 20 + [SILENT] * 20 + [GOOD], ["not-reported"]),
        (
            [GOOD._replace(stream=True, reused=0, predicted=64)] * 20 + [GOOD._replace(predicted=64)] * 20,
            ["stream-and-whole-differ"],
        ),
        (
            [GOOD._replace(reused=0, predicted=64)] * 20 + [GOOD._replace(stream=True, predicted=64)] * 20,
            ["stream-and-whole-differ"],
        ),
        ([GOOD._replace(stream=True, reused=0, predicted=0)] * 20 + [GOOD._replace(predicted=64)] * 20, []),
        (
            [GOOD._replace(stream=True, reused=0, predicted=64)] * 20
            + [GOOD._replace(predicted=64)] * 20
            + [GOOD._replace(stream=True, predicted=64)],
            [],
        ),
        ([GOOD._replace(stream=True, reused=0, predicted=64)] * 20 + [GOOD._replace(predicted=64)] * 19, []),
        ([GOOD._replace(status=500, reused=None, reuse_status="not_reported")], []),
    ],
)
def test_each_sickness_has_its_finding(rows: list[LedgerRow], wanted: list[str]):
    assert rules(rows) == wanted


def test_engines_are_judged_apart():
    zero = [GOOD._replace(engine="z", reused=0, predicted=64)] * 20
    found = audited(zero + [GOOD] * 20).findings
    assert [(finding.rule, finding.engine) for finding in found] == [("always-zero", "z")]
