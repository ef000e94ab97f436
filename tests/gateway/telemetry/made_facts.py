"""Facts of requests that nobody made."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from engine_adapters.base import ReuseReport
from gateway.telemetry.facts import RequestFacts, RequestLabels
from gateway.telemetry.tally import Alike

LABELS = RequestLabels("chat", "m", "e", "chat", 200, "ok", None, "warm")


def facts(labels: RequestLabels = LABELS, **known: Any) -> RequestFacts:
    """One request, of which only what is given is known."""
    nothing = dict.fromkeys(RequestFacts.__struct_fields__[2:])
    return RequestFacts(labels, known.pop("duration_s", 0.5), **{**nothing, **known})


def alike(some: Sequence[RequestFacts]) -> Alike:
    """They are one batch."""
    found: dict[RequestLabels, list[RequestFacts]] = {}
    for each in some:
        found.setdefault(each.labels, []).append(each)
    return found


def some_facts() -> st.SearchStrategy[RequestFacts]:
    """Any request, with numbers in and out of all bounds."""
    seconds, tokens = st.none() | st.floats(0, 1000), st.none() | st.integers(0, 10**9)
    labels = st.builds(
        RequestLabels,
        st.sampled_from(["chat", "embeddings"]),
        st.sampled_from(["m", "other"]),
        st.sampled_from(["e", "none"]),
        st.just("chat"),
        st.sampled_from([200, 500]),
        st.sampled_from(["ok", "failed"]),
        st.sampled_from([None, "engine_failure"]),
        st.sampled_from([None, "warm", "cold", "not_reported", "inconsistent"]),
    )
    tiers = st.none() | st.dictionaries(st.sampled_from(["device", "host"]), st.integers(0, 99))
    report = st.builds(ReuseReport, st.none(), tokens, tiers, st.just("made"), st.just("reported"))
    return st.builds(
        RequestFacts,
        labels,
        st.floats(0, 1000),
        seconds,
        seconds,
        seconds,
        tokens,
        tokens,
        st.none() | report,
    )
