from pathlib import Path

import pytest

from canon.values import item_of, may_hold_item

DATA = Path(__file__).parents[1] / "data"
LINES = [
    line
    for name in ("lines_of_the_moment", "lines_of_the_moment_at_the_edge")
    for line in (DATA / f"{name}.txt").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("line", LINES)
def test_the_first_look_lets_every_item_through(line: str):
    assert may_hold_item(line)


@pytest.mark.parametrize(
    "line", ["You are the help desk.", "Be brief.", "", "  ", "If a parcel is late, say so.", "1. Ask."]
)
def test_the_first_look_turns_prose_away(line: str):
    assert not may_hold_item(line)


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("Current time: 10:31", ["clock"]),
        ("Today is 2030-08-01, and the current working directory is '/w/a'.", ["date", "path"]),
        ("Request-Id: 01J7X3QKZ8V5M2N4P6R8T0W2Y4", ["ulid"]),
        ("Session: 550e8400-e29b-41d4-a716-446655440000", ["uuid"]),
        ("Session ID: 2KzqVbN8RtY4mXcW7pLhJd3sFgA", ["ksuid"]),
        ("Conversation ID: V1StGXR8_Z5jdHi6B-myT", ["id"]),
        ("Scratch directory: /tmp/x1", ["temporary path"]),
        ("PID: 4412, Port: 41235", ["pid", "port"]),
        ("Hostname: web-7f9c", ["host"]),
        ("Git branch: feature/x-12", ["branch"]),
        ("Current commit: 4f2a9c1", ["revision"]),
        ("Iteration 7 of 50", ["counter"]),
        ("Locale: de-DE, Time zone: Europe/Berlin", ["locale", "time zone"]),
        ("Latitude: 59.9139, Longitude: 10.7522", ["coordinates", "coordinates"]),
        ("User email: ana@example.com", ["mail"]),
        ("Turn 3 of 9 | Current time: 10:31", ["counter", "clock"]),
    ],
)
def test_each_value_has_a_kind(line: str, kinds: list[str]):
    item = item_of(line)
    assert item is not None
    assert item.whole
    assert [kind for kind, _, _ in item.values] == kinds


def test_values_are_cut_out_exactly():
    line = "- **Current time:** 10:31 (today), session_id=a8Kd92Lm"
    item = item_of(line)
    assert item is not None
    assert [line[start:stop] for _, start, stop in item.values] == ["10:31", "a8Kd92Lm"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("The current time is 10:31. Use it.", "clock"),
        ("Current date: 2030-09-05 was a Thursday in May", "date"),
    ],
)
def test_a_line_that_goes_on_is_no_whole_item(line: str, kind: str):
    item = item_of(line)
    assert item is not None
    assert not item.whole
    assert item.kind == kind
