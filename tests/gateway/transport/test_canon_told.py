"""What a header and the access line say of canon: counts, and nothing of what is nothing."""

from typing import Any

import pytest

from gateway.transport.record import CanonTold

EDITS = {"tool_order": 1, "newlines": 2}


@pytest.mark.parametrize(
    ("told", "header", "fields"),
    [
        (CanonTold("full"), "full; edits=0", {}),
        (CanonTold("observe", applied=False), "observe; would-edit=0", {}),
        (CanonTold("full", edits=EDITS), "full; edits=3; newlines=2; tool_order=1",
         {"canon_edits": "newlines=2,tool_order=1"}),
        (CanonTold("observe", edits=EDITS, applied=False), "observe; would-edit=3; newlines=2; tool_order=1",
         {"canon_would_edit": "newlines=2,tool_order=1"}),
        (CanonTold("safe", edits=EDITS, bypassed=True, findings={"date": 2, "uuid": 1}), "safe; bypassed",
         {"canon_bypassed": True, "canon_edits": "newlines=2,tool_order=1", "canon_findings": 3}),
        (CanonTold("safe", control_tokens=2), "safe; edits=0; control_tokens=2", {"control_tokens": 2}),
        (CanonTold("safe", bypassed=True, control_tokens=2), "safe; bypassed; control_tokens=2",
         {"canon_bypassed": True, "control_tokens": 2}),
        (CanonTold("safe", findings={"date": 0}, gain_tokens=0), "safe; edits=0", {}),
        (CanonTold("full", gain_tokens=-16), "full; edits=0", {"canon_gain_tokens": -16}),
    ],
)  # fmt: skip
def test_what_is_told_of_canon(told: CanonTold, header: str, fields: dict[str, Any]) -> None:
    assert told.header() == header.encode()
    assert told.fields() == {"canon": told.policy, **fields}
