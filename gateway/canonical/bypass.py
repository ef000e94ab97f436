"""Bodies that canon must leave as they are, since they could not be written again."""

from typing import Any

from canon import CanonResult, Finding


def bypass(body: Any, loss: str) -> CanonResult:
    """The result for a body which is not rewritten, as writing it would lose what `loss` says."""
    fix = "write numbers in their shortest form, and each key once"
    return CanonResult(body, findings=(Finding("canon", "", "cannot be written again", loss, fix=fix),))
