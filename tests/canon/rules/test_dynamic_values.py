from pathlib import Path
from typing import Any

import pytest

import canon

DATA = Path(__file__).parents[1] / "data"
PROSE = "You are the help desk of a bicycle shop.\nAnswer in two sentences at most."


def lines(name: str) -> list[str]:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def request(system: Any, *turns: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns or ("hi",))]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *messages]}


def sent(system: Any, *turns: str) -> tuple[Any, str]:
    """The system content and the newest turn's text that go out under `full`."""
    messages = canon.canonicalize(request(system, *turns), policy="full").body["messages"]
    return messages[0]["content"], messages[-1]["content"]


@pytest.mark.parametrize("line", lines("lines_of_the_moment"))
@pytest.mark.parametrize("form", ["{line}\n{prose}", "{prose}\n{line}", "{prose}\n\n{line}\n\n{prose}"])
def test_a_line_of_the_moment_moves_word_for_word_wherever_it_stands(line: str, form: str):
    text = form.format(line=line, prose=PROSE)
    system, newest = sent(text)
    assert system == form.replace("{line}\n\n", "").replace("{line}", "").strip("\n").format(prose=PROSE)
    assert newest == f"hi\n\n[context]\n{line}\n[/context]"


@pytest.mark.parametrize("line", lines("lines_of_the_moment_at_the_edge"))
def test_a_value_that_says_little_of_itself_moves_from_the_first_and_last_line_only(line: str):
    assert sent(f"{line}\n{PROSE}")[0] == PROSE
    assert sent(f"{PROSE}\n{line}")[0] == PROSE
    assert sent(f"{PROSE}\n{line}\n{PROSE}")[0] == f"{PROSE}\n{line}\n{PROSE}"


@pytest.mark.parametrize("line", lines("lines_of_content"))
@pytest.mark.parametrize("form", ["{line}\n{prose}", "{prose}\n{line}", "{prose}\n\n{line}\n\n{prose}"])
def test_content_and_instructions_stay(line: str, form: str):
    text = form.format(line=line, prose=PROSE)
    body = request(text)
    assert canon.canonicalize(body, policy="full").body == body


def test_an_item_leaves_its_block_and_the_block_stays():
    system, newest = sent(
        f"{PROSE}\n<memory_metadata>\n- The current date is: 2030-08-28 10:11\n- 3 blocks\n</memory_metadata>"
    )
    assert system == f"{PROSE}\n<memory_metadata>\n- 3 blocks\n</memory_metadata>"
    assert "- The current date is: 2030-08-28 10:11" in newest


@pytest.mark.parametrize(
    "block",
    [
        "<env>\nWorking directory: /w/a\nPlatform: linux\nToday's date: 2030-08-28\n</env>",
        "<user_context>name: Ana; tz: Europe/Oslo; screen: traces</user_context>",
        "<user_context>\nname: Ana\ntz: Europe/Oslo\n</user_context>",
        "<current_time>2030-08-28T10:11:12Z</current_time>",
        '<session id="4f2a-11" started="10:31:07"/>',
        "## Current Time\n2030-02-06 10:31 (Wednesday)",
        "Current time:\n2030-02-06 10:31",
        "# Environment\n- Current time: 10:31\n- cwd: /w/a",
        "# Context\n- Date: 2030-09-05\n- Time: 10:31\n- User: Ana",
        "# Runtime\nagent=main | host=web-7f9c | os=linux",
        "Environment:\n  cwd: /w/a\n  date: 2030-09-05",
        "User info:\n- Name: Ana\n- Time zone: Europe/Oslo\n- Plan: pro",
        "Here is where you work:\n<env>\n  Working directory: /w/a\n  Platform: linux\n</env>",
        "<context>\n<current_date>2030-09-05</current_date>\n<user>Ana</user>\n</context>",
        '<runtime>{"time": "2030-09-05T10:31:07Z", "host": "web-1"}</runtime>',
        "<system_warning>Token usage: 81234/200000; 118766 remaining</system_warning>",
        "【現在日時】2030年9月5日 14:07",
        "■現在日時\n2030年9月5日 14:07",
        "Date du jour : jeudi 5 septembre 2030\nHeure : 14h07",
        "Current time in Oslo: 14:07\nCurrent time in Tokyo: 21:07",
        "gitStatus:\nCurrent branch: main\nStatus:\nM a.py\n?? b.py",
        "Git status: This is a snapshot.\nCurrent branch: main\n\nStatus:\n(clean)\n\nRecent commits:\n4f2a9c1 Fix",
    ],
)
def test_a_block_of_state_moves_whole(block: str):
    for text in (f"{block}\n\n{PROSE}", f"{PROSE}\n\n{block}"):
        system, newest = sent(text)
        assert system == PROSE
        assert newest == f"hi\n\n[context]\n{block}\n[/context]"


@pytest.mark.parametrize(
    "content",
    [
        "```\nCurrent time: 10:31:07\n```",
        "<example>\nCurrent time: 10:31:07\n</example>",
        "> Current time: 10:31:07",
        "A log line looks like this:\nCurrent time: 10:31:07",
        "| what | when |\n|---|---|\n| Current time | 10:31 |",
        "Step 1 of 3\nAsk for the name.\nStep 2 of 3\nAsk for the order.",
        "From: Ana\nDate: Fri, 06 Sep 2030 10:00:00 +0200\nSubject: bell",
        "Example 1:\nCurrent time: 10:31:07\nUser: what time is it?",
        "## Example\n\nCurrent time: 10:31:07\n\nIt is late.",
        "# Changelog\n\n## Session\n\nSession ID: a1b2c3",
        "示例：\n当前时间：2030-09-05 14:07",
        "User:\nhello\nAssistant:\nhi",
        "Context:\n- Company: Acme\n- Hours: 9-17",
        "# Session rules\n- Length: 45 minutes\n- Start: 14:07",
        "<example_context>\nCurrent time: 10:31:07\n</example_context>",
        "Session ID: a1b2c3\nSession ID: d4e5f6",
        "name: Captain Flint\nlocation: Tortuga",
        "<div>\nCurrent time: 10:31:07\n</div>",
        "“Current time: 10:31:07”",
        "The text is:\n\nCurrent time: 10:31:07",
        "current_time = now();\nsession_id = 'a1b2c3';",
        "2030-09-05 10:31 opened\n2030-09-06 11:32 closed",
        "- 2030-09-05 10:31\n- 2030-09-06 11:32",
        "<rules>\nWhen asked for the time, use the tool.\n</rules>",
    ],
)
def test_what_stands_in_content_stays(content: str):
    body = request(f"{PROSE}\n\n{content}\n\n{PROSE}")
    assert canon.canonicalize(body, policy="full").body == body


def test_behind_an_example_the_text_goes_on():
    examples = "Example:\nCurrent time: 10:31:07\n\n{}# Examples\nIt is 9:41 AM.\n# Rules\n{}"
    system, newest = sent(examples.format("Current time: 10:32:08\n\n", f"It is 9:42 AM.\n{PROSE}"))
    assert system == examples.format("", PROSE)
    assert newest == "hi\n\n[context]\nCurrent time: 10:32:08\nIt is 9:42 AM.\n[/context]"


def test_a_value_in_content_is_reported():
    result = canon.canonicalize(request(f"{PROSE}\n```\nCurrent time: 10:31:07\n```\n"), policy="full")
    assert [(finding.rule, finding.values) for finding in result.findings] == [
        ("dynamic_values", ("10:31:07",))
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("You help. It was 10:31:07 when the bell rang.", "10:31:07"),
        ("The current time is 10:31:07. Use it.", "10:31:07"),
        ("Ask for 550e8400-e29b-41d4-a716-446655440000 first.", "550e8400-e29b-41d4-a716-446655440000"),
        ("Never before 9:05:00.", "9:05:00"),
    ],
)
def test_a_value_in_a_sentence_is_reported_once_and_stays(text: str, value: str):
    result = canon.canonicalize(request(text), policy="full")
    assert not result.changed
    assert [(finding.values, finding.offset) for finding in result.findings] == [
        ((value,), text.index(value))
    ]


@pytest.mark.parametrize(
    "text", ["The ratio is 16:9:4.", "MAC 10:31:07:aa", "See 12:30.", "a-1234-1234-1234-123456789abc"]
)
def test_other_numbers_are_not_reported(text: str):
    assert not canon.canonicalize(request(text), policy="full").findings


def test_where_the_policy_does_not_move_it_says_what_it_would_move():
    result = canon.canonicalize(request(f"Current time: 10:31:07\n{PROSE}"), policy="safe")
    assert not result.changed
    assert [finding.values for finding in result.findings] == [("Current time: 10:31:07",)]


def test_a_request_without_a_turn_for_the_note_keeps_its_values():
    body = {"messages": [{"role": "system", "content": f"Current time: 10:31:07\n{PROSE}"}]}
    result = canon.canonicalize(body, policy="full")
    assert result.body == body
    assert result.findings


def test_a_part_that_would_be_left_empty_goes_unless_it_is_marked():
    clock = {"type": "text", "text": "Current time: 10:31:07"}
    prose = {"type": "text", "text": PROSE, "cache_control": {"type": "ephemeral"}}
    assert sent([clock, prose])[0] == [prose]
    marked = {**clock, "cache_control": {"type": "ephemeral"}}
    assert sent([marked, prose])[0] == [marked, prose]


def test_values_of_several_parts_stand_in_the_note_as_they_stood():
    texts = ("Current time: 10:31:07", f"PID: 4412\n{PROSE}", f"{PROSE}\ncwd: /w/a")
    system, newest = sent([{"type": "text", "text": text} for text in texts])
    assert system == [{"type": "text", "text": PROSE}, {"type": "text", "text": PROSE}]
    assert newest == "hi\n\n[context]\nCurrent time: 10:31:07\nPID: 4412\ncwd: /w/a\n[/context]"


def test_a_system_text_that_is_nothing_but_a_value_is_left_empty():
    assert sent("Current time: 10:31:07")[0] == ""
    body = {"instructions": "Current time: 10:31:07", "input": "hi"}
    assert canon.canonicalize(body, policy="full").body == {
        "instructions": "",
        "input": "hi\n\n[context]\nCurrent time: 10:31:07\n[/context]",
    }
    body = {
        "system": [{"type": "text", "text": "Current time: 10:31:07"}],
        "messages": [{"role": "user", "content": "hi"}],
    }
    assert canon.canonicalize(body, policy="full").body["system"] == ""


def test_edits_say_where_the_value_is_now():
    result = canon.canonicalize(request(f"Current time: 10:31:07\n{PROSE}"), policy="full")
    assert [(edit.rule, edit.before, edit.after, edit.moved_to) for edit in result.edits] == [
        ("dynamic_values", "Current time: 10:31:07", "", "messages[1].content")
    ]
