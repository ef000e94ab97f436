"""Every line is found, and what is not prose is guarded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canon.text import lines_of

BREAKS = ["\n", "\r\n", "\r", " ", "  ", "\t", "a", "b c", "é", "\x0b", "\u2028"]
MARKS = [
    "```",
    "~~~",
    '"""',
    "- ",
    "key:",
    "k: |+",
    "<x>",
    "</x>",
    "<br/>",
    "|",
    "--- ",
    "+++ ",
    "@@ -1 +1 @@",
]
OPENERS = ['"', "“", "”", ">", "def f():", "The text is:", "{", "}", ";", ":"]
PIECES = st.lists(st.sampled_from(BREAKS + MARKS + OPENERS), max_size=40)


@given(PIECES.map("".join))
def test_lines_and_their_ends_make_up_the_whole_text(text: str) -> None:
    lines = lines_of(text)
    assert "".join(text[line.start : line.stop] for line in lines) == text
    assert all(text[line.end : line.stop] in ("\n", "\r\n", "\r") for line in lines[:-1])
    assert lines[-1].end == lines[-1].stop == len(text)
    assert not any("\n" in line.of(text) or "\r" in line.of(text) for line in lines)


def guarded(text: str) -> dict[str, str | None]:
    return {line.of(text): line.guard for line in lines_of(text)}


PROSE = "You help.\nRule 1: be brief.\n\n- Tone: warm\n- Never promise.\n  - Not even small.\n1. Look.\n   2. Say."


def test_prose_with_lists_and_labels_is_not_guarded() -> None:
    assert set(guarded(PROSE).values()) == {None}
    assert set(
        guarded('Hi <name>, <b>greet</b> "them" and don\'t say 5" or a | b.  Ever.  At all.').values()
    ) == {None}
    assert set(guarded("You are here.\n    Rule one.\n    Rule two.\n\n    Rule three.").values()) == {None}
    assert set(guarded("Current time: 10:00\nRules:\nenv: prod").values()) == {None}


# (what guards it, a text of which every line but those that begin with "Prose" is guarded so)
GUARDED = [
    ("fence", "Prose\n```python\nx = 1 \n\n  y\n```\nProse after"),
    ("fence", "Prose: ```\nx \n\n~~~\nx"),
    ("fence", "~~~~\n~~~\n```\n~~~~\nProse"),
    ("fence", "  ```\nx```\nProse"),
    ("fence", '"""\nCurrent time: 10\n"""\nProse'),
    ("diff", "Prose\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old \n+new\n context\nProse"),
    ("diff", "@@ -1 +1 @@\n-a\n+b\n\n same"),
    ("table", "Prose\n| a |  b  |\n|---|---|\n| 1 | 2 |\nProse"),
    ("table", "Prose\n\na | b\n--- | ---\n1 | 2\n\nProse"),
    ("table", "+---+---+\n| a | b |\n+---+---+\nProse"),
    ("table", "name\tage\nBob\t9"),
    ("table", "name   age   city\nBob    9     Rome"),
    ("quote", "> Current time: 10:00\n> more\nProse"),
    ("quote", 'He said:\n"Current time\nis now."\nProse'.replace("He said:\n", "Prose\n")),
    ("quote", "Prose\n“Current time\nis now.”\nProse"),
    ("quote", "Prose\n„Es ist\njetzt.“\nProse"),
    ("quote", "Prose\n「今は\n10時」\nProse"),
    ("markup", "Prose\n<p>\nx \n</p>\nProse"),
    ("markup", "<?xml version='1.0'?><a>\n<date>\nx\n</date>\n</a>\nProse"),
    ("tagged", "Prose\n<env>\nDate: x\n</env>\nProse"),
    ("tagged", "Prose <env a='1'>\nDate: x\nend</env>\nProse"),
    ("tagged", "<outer>\n<inner>\nx\n</inner>\ny\n</outer>\nProse"),
    ("indent", "Prose:\n\n    code block\n\n\n    goes on\nProse"),
    ("indent", "- name: Lamp\n  state: 'off'\n- name: Fan\n  state: 'on'"),
    ("indent", "services:\n  web: x\nvolumes:\nProse here"),
    ("indent", "note: |+\n  keep  \n\n\nProse"),
    ("code", "def f(x): return x\n>>> f(1)\nimport os\nx = 1;\nif (a) {\n}\nProse"),
    ("code", '{"a": 1}\nProse'),
    ("content", "Prose: the text is:\nCurrent time: 10:00\n\nmore\n\n"),
    ("content", "Prose: translate this letter:\nDear Bob,\n\n\nBye"),
    ("content", "Prose, der Text lautet:\nx"),
    ("content", "Prose 文本如下：\nx"),
    ("example", "Prose, for example:\nCurrent time: 10:00\n\nProse again"),
]


@pytest.mark.parametrize(("guard", "text"), GUARDED)
def test_what_is_not_prose_is_guarded(guard: str, text: str) -> None:
    closing = ("```", "~~~~", '"""', "</p>", "</env>", "</a>", "</outer>", "")
    for line in lines_of(text):
        shown = line.of(text)
        if shown.startswith("Prose"):
            assert line.guard in (None, guard if shown.endswith(("```", "<env a='1'>")) else None), shown
        elif shown not in closing:
            assert line.guard == guard, shown


def test_a_line_that_only_closes_is_prose_again_and_blank_lines_inside_are_not() -> None:
    lines = lines_of("```\n\n```\n\n<env>\n\n</env>\n")
    assert [line.guard for line in lines] == ["fence", "fence", None, None, "tagged", "tagged", None, None]


def test_a_tag_inside_a_fence_opens_nothing() -> None:
    assert guarded("```\n<env>\n```\nafter\n</env>")["after"] is None


def test_text_that_is_handed_over_in_a_fence_or_a_tag_ends_there() -> None:
    assert guarded("Here is the text:\n\n```\nx\n```\nafter")["after"] is None
    assert guarded("Here is the text:\n<doc>\nx\n</doc>\nafter")["after"] is None
