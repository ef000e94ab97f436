"""Stop strings end a text at the same place however it was cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.embedded.output.stop_strings import StopStrings

SHORT_TEXT = st.text(alphabet="ab.", max_size=40)
STOPS = st.lists(st.text(alphabet="ab.", min_size=1, max_size=5), min_size=1, max_size=4)


def naive(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """Look at every prefix of the text: the first one that ends with a stop string ends it."""
    for end in range(1, len(text) + 1):
        found = max((stop for stop in stops if text[:end].endswith(stop)), key=len, default=None)
        if found is not None:
            return text[: end if include else end - len(found)], found
    return text, None


def run(stops: StopStrings, pieces: list[str]) -> tuple[str, str | None]:
    out, stopped = "", None
    for piece in pieces:
        result = stops.push(piece)
        out += result.text
        stopped = stopped or result.stop
    return out + stops.flush(), stopped


@given(
    pieces=st.lists(st.text(alphabet="ab.", max_size=6), max_size=12),
    stops=STOPS,
    include=st.booleans(),
)
def test_any_cut_gives_what_looking_at_every_prefix_gives(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    assert run(StopStrings(tuple(stops), include), pieces) == naive("".join(pieces), stops, include)


@given(
    text=SHORT_TEXT, stops=st.lists(st.text(alphabet="ab.", min_size=1, max_size=5), min_size=1, max_size=4)
)
def test_holds_back_no_more_than_what_may_still_become_a_stop(text: str, stops: list[str]) -> None:
    machine = StopStrings(tuple(stops), False)
    result = machine.push(text)
    if result.stop is None:
        held = text[len(result.text) :]
        assert held == "" or any(stop.startswith(held) for stop in stops)
        # and no less: anything given out could not have been the start of one
        assert not any(
            stop.startswith(text[at:]) for at in range(len(result.text)) for stop in stops if text[at:]
        )


@pytest.mark.parametrize(("include", "expected"), [(False, "one "), (True, "one END")])
def test_a_stop_that_begins_and_ends_inside_tokens(include: bool, expected: str) -> None:
    stops = StopStrings(("END",), include)
    first = stops.push("one E")
    second = stops.push("ND two")
    assert first.text == "one "
    assert first.text + second.text == expected
    assert second.stop == "END"
    assert stops.push("three").text == ""
    assert stops.flush() == ""


def test_without_stops_text_passes_through() -> None:
    stops = StopStrings((), False)
    assert stops.push("anything").text == "anything"
    assert stops.flush() == ""


def test_empty_stop_strings_are_ignored() -> None:
    assert run(StopStrings(("", "b"), False), ["ab"]) == ("a", "b")


def test_characters_outside_the_basic_plane_and_combining_ones() -> None:
    assert run(StopStrings(("👩‍👧",), False), ["hi 👩", "‍", "👧!"]) == ("hi ", "👩‍👧")
    assert run(StopStrings(("é",), False), ["e\u0301"]) == ("e\u0301", None)
