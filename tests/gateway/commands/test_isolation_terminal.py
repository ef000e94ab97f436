"""Each tier has its row and its reason, and by what the verdict was reached is said."""

from io import StringIO

import pytest
from rich.console import Console

from gateway.commands.doctor.isolation_terminal import print_isolation
from gateway.reports.isolation.result import By, Finding, Isolation, Suspicion, Verdict
from gateway.reports.isolation.trial import Gain


def finding(tier: str, verdict: Verdict, by: tuple[By, ...], why: str) -> Finding:
    gain = Gain(13.27, 1.0, 2e-14)
    return Finding(
        tier,
        verdict,
        by,
        why,
        24,
        11_168,
        11_152,
        11_136,
        gain,
        gain,
        0.001,
        (Suspicion("times", 0.01, 0, None),),
    )


def printed(*findings: Finding) -> str:
    console = Console(file=StringIO(), width=118)
    print_isolation(Isolation("http://x", "m", findings, "", (), None, 1, 1), console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("by", "row", "verdict"),
    [
        (("reuse",), "leaks    | reuse", "first one's prefixes. By reuse."),
        (("reuse", "times"), "leaks    | reuse, times", "first one's prefixes. By reuse and times."),
    ],
)
def test_by_what_it_leaks_stands_in_the_row_and_in_the_verdict(by: tuple[By, ...], row: str, verdict: str):
    said = printed(
        finding("device", "leaks", by, "It does."), finding("host", "isolated", ("times",), "It is.")
    )
    assert row in said.replace("│", "|")
    assert f"It LEAKS: the second tenant gets something of the {verdict}" in said
    assert "device: It does." in said
    assert "host: It is." in said
    assert "…" not in said


def test_where_nothing_was_decided_nothing_is_named():
    said = printed(finding("device", "cannot tell", (), "Too few."))
    assert "cannot tell │ -" in said
    assert "Cannot tell.  " in said
