"""Both sides of one engine, and what their difference most likely comes from."""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.reports.findings import ReportFinding

_SHARE = 0.01  # of the larger side: counters and usage are taken at different moments of a request
_FLOOR = 64  # tokens
_OWN_PER_S = 1.0  # tokens: kvgate itself asks an engine about its reports with a few tokens each minute


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Prompt tokens over the spans that scrapes cover. None: the engine does not count that."""

    engine: str
    seconds: float  # that are covered
    restarts: int  # within the window; spans around them are left out
    requests: int  # that ended in those spans
    counted_prompt: int | None  # by the engine
    counted_reused: int | None
    counted_recomputed: int | None
    prompt: int  # by requests
    reused: int
    recomputed: int
    silent_prompt: int  # of requests that did not report what they reused
    at_the_edge: (
        int  # prompt tokens of requests that began on one side of a span's end and ended on the other
    )

    @property
    def tolerance(self) -> float:
        """Tokens by which both sides may differ and still say the same."""
        larger = max(self.prompt, self.counted_prompt or 0)
        return max(_FLOOR, _SHARE * larger) + self.at_the_edge + _OWN_PER_S * self.seconds


def differences(found: Reconciliation) -> Iterator[ReportFinding]:
    """What does not agree."""
    prompt = _prompt_differs(found)
    if prompt is not None:
        yield prompt
        return  # other traffic is in the engine's figures, so reuse cannot be compared
    yield from _reuse_differs(found)


def _prompt_differs(found: Reconciliation) -> ReportFinding | None:
    if found.counted_prompt is None or abs(found.counted_prompt - found.prompt) <= found.tolerance:
        return None
    detail = f"The engine counted {found.counted_prompt:,} prompt tokens, requests {found.prompt:,}."
    if found.counted_prompt > found.prompt:
        cause = "others use this engine past this gateway, or rows were dropped"
        return ReportFinding("engine-counted-more", "doubtful", found.engine, detail, cause)
    cause = "several engines stand behind one address, and counters come from one of them"
    fix = "Configure each engine with an address of its own."
    return ReportFinding("engine-counted-less", "doubtful", found.engine, detail, cause, fix)


def _reuse_differs(found: Reconciliation) -> Iterator[ReportFinding]:
    if found.counted_reused is not None:
        yield from _reused_differs(found, found.counted_reused)
    elif found.counted_recomputed is not None:
        yield from _recomputed_differs(found, found.counted_recomputed)


def _reused_differs(found: Reconciliation, counted: int) -> Iterator[ReportFinding]:
    detail = f"Requests reported {found.reused:,} reused tokens, the engine counted {counted:,}."
    if counted < found.reused - found.tolerance:
        cause = "requests report what was found and not what was used, or a figure that is made up"
        yield ReportFinding("reported-too-much", "wrong", found.engine, detail, cause, "Ask `kvgate doctor`.")
    elif counted > found.reused + found.silent_prompt + found.tolerance:
        cause = "of several prompts in one request only one is reported, or answers leave a tier out"
        yield ReportFinding("reported-too-little", "wrong", found.engine, detail, cause)


def _recomputed_differs(found: Reconciliation, counted: int) -> Iterator[ReportFinding]:
    low, high = found.recomputed - found.tolerance, found.recomputed + found.silent_prompt + found.tolerance
    if low <= counted <= high:
        return
    detail = f"By their reports requests computed {found.recomputed:,} prompt tokens, the engine counted {counted:,}."
    if counted > high:
        cause = "requests report more reuse than there was, or others use this engine past this gateway"
        yield ReportFinding("computed-more", "doubtful", found.engine, detail, cause, "Ask `kvgate doctor`.")
    else:
        cause = "requests report less reuse than there was, or several engines stand behind one address"
        yield ReportFinding("computed-less", "doubtful", found.engine, detail, cause)
