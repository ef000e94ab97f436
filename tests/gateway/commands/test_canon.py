"""`kvgate canon` shows what the gateway would do to one body."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gateway.cli import app
from gateway.commands.canon.diff import difference, visible

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Current time: 2031-03-04 10:11:12\nBe brief.\r\nBe kind."},
        {"role": "user", "content": "Hello"},
    ],
}


def canon(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["canon", *arguments], input=stdin)


def test_edits_are_shown_as_a_diff_with_what_cannot_be_seen_spelled_out() -> None:
    shown = canon("-", stdin=json.dumps(BODY))
    assert shown.exit_code == 0
    assert "- Be brief.␍" in shown.stdout
    assert "+ Be brief." in shown.stdout
    assert "- Current time: 2031-03-04 10:11:12" in shown.stdout
    assert "moved to messages[1].content" in shown.stdout
    assert "edits under policy full" in shown.stdout


def test_json_has_the_body_the_edits_and_the_findings(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text(json.dumps(BODY))
    shown = canon(str(tmp_path / "body.json"), "--policy", "safe", "--json")
    told = json.loads(shown.stdout)
    assert told["changed"] is True
    assert told["body"]["messages"][0]["content"] == BODY["messages"][0]["content"].replace("\r", "")
    assert [edit["rule"] for edit in told["edits"]] == ["newlines"]
    assert "dynamic_values" in [finding["rule"] for finding in told["findings"]]


def test_observe_shows_edits_and_changes_nothing() -> None:
    told = json.loads(canon("-", "--policy", "observe", "--json", stdin=json.dumps(BODY)).stdout)
    assert told["body"] == BODY
    assert told["edits"]
    assert "none applied" in canon("-", "--policy", "observe", stdin=json.dumps(BODY)).stdout


def test_check_says_by_its_exit_code_whether_the_body_would_change() -> None:
    assert canon("-", "--check", stdin=json.dumps(BODY)).exit_code == 1
    clean = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]})
    assert canon("-", "--check", stdin=clean).exit_code == 0
    assert "Nothing to edit" in canon("-", "--check", stdin=clean).stdout


def test_what_cannot_be_written_again_is_left_alone_as_by_the_gateway() -> None:
    raw = json.dumps({**BODY, "n": 1}).replace('"n": 1', '"n": 1E0')
    told = json.loads(canon("-", "--json", stdin=raw).stdout)
    assert told["changed"] is False
    assert "1E0" in told["findings"][0]["detail"]


@pytest.mark.parametrize(
    ("stdin", "why"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object, not an array"),
        ("", "not valid JSON"),
        ('{"model": "m"}\n{"model": "m"}', "kvgate lint"),
        ('{"a": 1e400}', "not valid JSON"),
        (b"\xff", "not valid JSON"),
    ],
)
def test_what_is_no_body_is_refused_with_its_cause(stdin: str | bytes, why: str) -> None:
    shown = canon("-", stdin=stdin)
    assert shown.exit_code == 2
    assert why in shown.stderr
    assert not shown.stdout


def test_a_missing_file_and_an_unknown_policy_are_refused_by_name(tmp_path: Path) -> None:
    shown = canon(str(tmp_path / "none.json"))
    assert (shown.exit_code, "none.json" in shown.stderr) == (2, True)
    shown = canon("-", "--policy", "best", stdin=json.dumps(BODY))
    assert (shown.exit_code, "'best'" in shown.stderr) == (2, True)


def test_a_diff_shows_only_lines_near_a_difference() -> None:
    before = "\n".join(str(n) for n in range(100))
    lines = [text.plain for text in difference(before, before.replace("50", "fifty"))]
    assert lines == ["  49", "- 50", "+ fifty", "  51"]


def test_long_lines_and_odd_characters_are_shown_in_bounds() -> None:
    assert visible("\ufeffa\tb \x1b ") == "<BOM>a→b <U+001B>·"
    assert len(visible("x" * 100_000)) < 500


def test_a_file_that_is_not_there_is_named_in_words(tmp_path: Path) -> None:
    shown = canon(str(tmp_path / "none.json"))
    assert shown.exit_code == 2
    assert (
        shown.stderr == f"kvgate canon: {tmp_path / 'none.json'} cannot be read: No such file or directory\n"
    )


def test_names_of_rules_stay_in_one_piece() -> None:
    shown = canon("-", "--policy", "safe", stdin=json.dumps(BODY))
    assert "dynamic_values" in shown.stdout
