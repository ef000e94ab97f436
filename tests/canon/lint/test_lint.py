"""Causes are found, named and priced, each of several, and a log that only grows has none."""

import pytest

import canon

RULES = "\n".join(
    f"Rule {number}: be brief, and name the help page that you used for it." for number in range(12)
)
ANSWER = (
    "Your parcel left the warehouse and is with the carrier, who shows the next stop on the tracking page."
)


def chat(system: str, *turns: str, **more: object) -> dict:
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(turns)]
    return {"model": "m", "messages": [{"role": "system", "content": system}, *messages], **more}


def test_a_conversation_that_only_grows_has_nothing_to_report():
    turns = ["Where is it?", ANSWER, "And if it never arrives?", ANSWER + " Wait.", "Thanks"]
    report = canon.lint([chat(RULES, *turns[:count]) for count in (1, 3, 5)])
    assert report.findings == ()
    assert report.reuse_before > 0.5


def test_conversations_on_one_system_prompt_have_nothing_to_report():
    report = canon.lint([chat(RULES, question) for question in ("Where is it?", "How do I pay?", "Hello")])
    assert report.findings == ()


def test_every_cause_is_told_and_not_only_the_first():
    first = chat(f"Now: 10:31\n{RULES}\nLists:\n- tea\n- milk\nEnd of lists.", "Where?", ANSWER, "And then?")
    second = chat(f"Now: 10:32\n{RULES}\nLists:\n- milk\n- tea\nEnd of lists.", "Where?", ANSWER, "And then?")
    report = canon.lint([first, second])
    assert {finding.offset for finding in report.findings} == {5, len(f"Now: 10:31\n{RULES}\nLists:\n")}
    assert report.findings[0].tokens_lost > report.findings[1].tokens_lost > 0
    assert all(finding.path == "messages[0].content" for finding in report.findings)


def test_a_finding_counts_requests_and_adds_up_what_they_lost():
    bodies = [chat(f"Now: 10:3{minute}\n{RULES}", "Where?") for minute in range(4)]
    (finding,) = canon.lint(bodies).findings
    assert finding.requests == 3
    assert finding.tokens_lost == pytest.approx(3 * len(RULES) / 4, rel=0.1)


def test_a_salt_for_each_request_costs_the_whole_prompt():
    report = canon.lint([chat(RULES, "Where?", cache_salt=str(number)) for number in range(2)])
    (finding,) = report.findings
    assert (finding.rule, finding.path) == ("cache_salt", "cache_salt")
    assert finding.tokens_lost >= len(RULES) // 4


def test_a_block_attached_to_each_last_turn_is_a_floating_block():
    block = f"\n<docs>{ANSWER}</docs>"
    first = chat(RULES, "First?" + block)
    second = chat(RULES, "First?", ANSWER, "Second?" + block)
    (finding,) = canon.lint([first, second]).findings
    assert finding.rule == "floating_block"
    assert finding.path == "messages[1].content"


@pytest.mark.parametrize(
    "body", [None, 3, [], {}, {"messages": 1}, {"messages": [None, {"content": [1, {}]}]}]
)
def test_what_is_no_request_is_taken_without_a_word(body: object):
    assert canon.lint([body, body]).requests == 2


def test_conversations_that_ask_alike_and_take_turns_have_nothing_to_report():
    turns = [[f"{who}: question {turn} on the parcel", ANSWER] for turn in range(3) for who in ("Ana", "Bo")]
    talks = {who: [text for pair in turns[at::2] for text in pair] for at, who in enumerate(("Ana", "Bo"))}
    report = canon.lint([chat(RULES, *talk[:count]) for count in (1, 3, 5) for talk in talks.values()])
    assert report.findings == ()


def test_a_value_on_top_of_a_long_newest_turn_is_told():
    bodies = [chat("Be brief.", f"Case {name}\n{RULES}") for name in ("of the bell", "of the horn")]
    (finding,) = canon.lint(bodies).findings
    assert (finding.rule, finding.path) == ("changing_text", "messages[1].content")


def test_other_marks_around_the_same_words_are_no_list_in_another_order():
    bodies = [chat(f"Say {mark}good day{mark} first.\n{RULES}", "Where?") for mark in "\"'"]
    assert [finding.rule for finding in canon.lint(bodies).findings] == ["changing_text"]


def test_a_block_that_differs_each_time_and_is_on_the_newest_turn_only_is_told():
    blocks = [f"\n\nOpen file: a.py, line {line}. Others: b.py, c.py and d.py." for line in (12, 14)]
    bodies = [chat(RULES, "First?" + blocks[0]), chat(RULES, "First?", ANSWER, "Second?" + blocks[1])]
    (finding,) = canon.lint(bodies).findings
    assert (finding.rule, finding.path) == ("floating_block", "messages[1].content")


def test_a_tool_result_that_was_cleared_is_told_with_the_answer_that_is_computed_again():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    bodies = [chat(RULES, "Where?") for _ in range(2)]
    for body, result in zip(bodies, ("row " * 50, "[old result cleared]"), strict=True):
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": result},
        ]
    bodies[1]["messages"] += [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": "Next"}]
    (finding,) = canon.lint(bodies).findings
    assert finding.rule == "history_rewritten"
    assert finding.tokens_lost == len(ANSWER) // 4


@pytest.mark.parametrize(
    "age", ["{} days ago", "{} дня назад", "{} giorni fa", "há {} dias", "{} gün önce", "il y a {} jours"]
)
def test_ages_are_told_in_many_languages(age: str):
    bodies = [chat(f"Memory:\n- likes bells ({age.format(days)})\n{RULES}", "Where?") for days in (3, 4)]
    (finding,) = canon.lint(bodies).findings
    assert finding.rule == "relative_time"


def test_a_late_system_message_merged_into_the_first_one_is_told_as_that():
    late = {"role": "system", "content": f"From now on answer in French, whatever was said. {ANSWER}"}
    first = chat(RULES, "First?", ANSWER)
    first["messages"] += [late, {"role": "user", "content": "Second?"}]
    second = chat(f"{RULES}\n{late['content']}", "First?", ANSWER, "Second?")
    assert "hoisted_system" in {finding.rule for finding in canon.lint([first, second]).findings}


def test_arguments_as_a_string_here_and_as_an_object_there_are_a_finding():
    def asked(arguments: object) -> dict:
        body = chat(RULES, "Where?")
        call = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": arguments}}
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": ANSWER},
        ]
        return body

    (finding,) = canon.lint([asked('{"id":1}'), asked({"id": 1})]).findings
    assert (finding.rule, finding.values) == ("call_arguments", ("string", "object"))
    assert finding.path == "messages[2].tool_calls[0].function.arguments"
    assert finding.tokens_lost >= len(ANSWER) // 4
    assert canon.lint([asked({"id": 1}), asked({"id": 1})]).findings == ()
