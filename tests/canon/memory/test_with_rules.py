"""The memory together with all rules of `full`, through the public entry, over every shape of request."""

import copy
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import canon

RULES = "\n".join(f"Rule {n}: answer in short sentences, and name the page that you used." for n in range(5))
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in "acb"]


def system(time: str) -> str:
    return f"Current time: 2031-03-04 {time}\nYou are a help desk.\n{RULES}"


def chat(turns: list[str], time: str, *, parts: bool = False, **fields: Any) -> dict[str, Any]:
    def content(text: str) -> Any:
        return [{"type": "text", "text": text}] if parts else text

    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": content(text)} for n, text in enumerate(turns)]
    return {"model": "m", "messages": [{"role": "system", "content": system(time)}, *messages], **fields}


def anthropic(turns: list[str], time: str, **fields: Any) -> dict[str, Any]:
    body = chat(turns, time, parts=True)
    return {"model": "m", "max_tokens": 9, "system": system(time), "messages": body["messages"][1:], **fields}


def responses(turns: list[str], time: str, **fields: Any) -> dict[str, Any]:
    items = [
        {"type": "message", "role": "user", "content": text}
        if n % 2 == 0
        else {"role": "assistant", "content": [{"type": "output_text", "text": text}]}
        for n, text in enumerate(turns)
    ]
    return {"model": "m", "instructions": system(time), "input": items, **fields}


Shape = Callable[..., dict[str, Any]]
SHAPES: list[Shape] = [chat, lambda turns, time: chat(turns, time, parts=True), anthropic, responses]


def items(body: dict[str, Any]) -> list[str]:
    """What is sent in front of and as the conversation, each as JSON."""
    head = [body.get("system"), body.get("instructions"), body.get("tools")]
    return [json.dumps(each) for each in [*head, *(body.get("messages") or body["input"])]]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_growing_conversation_only_grows_and_always_has_the_time(shape: Shape) -> None:
    memory, sent = canon.ConversationMemory(), [""]
    turns: list[str] = []
    for n, time in enumerate(("10:11:12", "10:11:12", "10:15:40", "10:11:12")):
        turns += [f"question {n}"]
        body = shape(turns, time)
        before = copy.deepcopy(body)
        result = canon.canonicalize(body, "full", memory, "tenant/m")
        assert body == before
        assert time in json.dumps(result.body)
        assert time not in items(result.body)[0] + items(result.body)[1]
        assert items(result.body)[: len(sent)] == sent or n == 0
        sent = items(result.body)
        memory.record(result.body, {}, "tenant/m")
        turns += [f"answer {n}"]


def test_a_plain_input_that_becomes_a_list_goes_on_as_it_was_sent() -> None:
    memory = canon.ConversationMemory()
    first = canon.canonicalize({**responses(["hi"], "10:11:12"), "input": "hi"}, "full", memory).body
    second = canon.canonicalize(responses(["hi", "hello", "and?"], "10:15:40"), "full", memory).body
    assert second["input"][0]["content"] == first["input"]
    assert "10:11:12" in first["input"]


def test_a_responses_tool_loop_gets_notes_behind_outputs_and_the_models_arguments() -> None:
    memory = canon.ConversationMemory()
    first = responses(["how many?"], "10:11:12")
    sent = canon.canonicalize(first, "full", memory).body
    call = {"type": "function_call", "call_id": "c1", "name": "stock", "arguments": '{"n":1}'}
    memory.record(first, {"object": "response", "output": [{"type": "reasoning", "summary": []}, call]})
    second = responses(["how many?"], "10:15:40")
    second["input"] += [
        {"type": "function_call", "call_id": "new", "name": "stock", "arguments": '{ "n": 1 }'},
        {"type": "function_call_output", "call_id": "new", "output": "four"},
    ]
    body = canon.canonicalize(second, "full", memory).body
    assert body["input"][0] == sent["input"][0]
    assert body["input"][1] == call
    assert body["input"][2]["call_id"] == "c1"
    assert body["input"][2]["output"][0] == {"type": "input_text", "text": "four"}
    assert "10:15:40" in body["input"][2]["output"][1]["text"]


def test_an_anthropic_tool_loop_keeps_objects_and_pairs() -> None:
    memory = canon.ConversationMemory()
    first = anthropic(["how many?"], "10:11:12")
    sent = canon.canonicalize(first, "full", memory).body
    use = {"type": "tool_use", "id": "c1", "name": "stock", "input": {"n": 1, "at": "x"}}
    memory.record(sent, {"type": "message", "role": "assistant", "content": [use]})
    second = anthropic(["how many?"], "10:11:12")
    other = {**use, "id": "new", "input": {"at": "x", "n": 1}}
    result = {"type": "tool_result", "tool_use_id": "new", "content": "four"}
    second["messages"] += [{"role": "assistant", "content": [other]}, {"role": "user", "content": [result]}]
    body = canon.canonicalize(second, "full", memory).body
    assert body["messages"][0] == sent["messages"][0]
    assert json.dumps(body["messages"][1]["content"][0]) == json.dumps(use)
    assert body["messages"][2]["content"] == [{**result, "tool_use_id": "c1"}]


def test_cache_marks_that_move_from_turn_to_turn_make_no_difference() -> None:
    memory = canon.ConversationMemory()
    sent: list[dict[str, Any]] = []
    turns: list[str] = []
    for n, time in enumerate(("10:11:12", "10:15:40", "10:21:00")):
        turns += [f"question {n}"]
        body = anthropic(turns, time)
        body["messages"][-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
        result = canon.canonicalize(body, "full", memory).body
        assert result["messages"][-1]["content"][0]["cache_control"] == {"type": "ephemeral"}
        assert time in result["messages"][-1]["content"][1]["text"]
        now = json.loads(
            json.dumps(result["messages"]).replace(', "cache_control": {"type": "ephemeral"}', "")
        )
        assert now[: len(sent)] == sent
        sent = now
        turns += [f"answer {n}"]


def test_a_tool_that_joins_goes_behind_those_already_sent_and_one_that_leaves_moves_none() -> None:
    memory = canon.ConversationMemory()

    def names(turns: list[str], tools: str) -> list[str]:
        offered = [tool for tool in TOOLS if tool["function"]["name"] in tools]
        body = canon.canonicalize(chat(turns, "10:11:12", tools=offered), "full", memory).body
        return [tool["function"]["name"] for tool in body["tools"]]

    turns = ["one"]
    assert names(turns, "ac") == ["a", "c"]
    turns += ["1", "two"]
    assert names(turns, "abc") == ["a", "c", "b"]
    turns += ["2", "three"]
    assert names(turns, "abc") == ["a", "c", "b"]
    turns += ["3", "four"]
    assert names(turns, "bc") == ["c", "b"]
    assert names(["another"], "abc") == ["a", "b", "c"]


def test_in_a_session_a_first_turn_that_comes_again_with_one_more_tool_keeps_the_row() -> None:
    memory = canon.ConversationMemory()
    for session, row in (("s", "acb"), ("", "abc")):
        for offered in ("ac", "abc"):
            tools = [tool for tool in TOOLS if tool["function"]["name"] in offered]
            body = chat(["one"], "10:11:12", tools=tools)
            sent = canon.canonicalize(body, "full", memory, session=session).body
        assert "".join(tool["function"]["name"] for tool in sent["tools"]) == row


def test_json_in_a_fence_is_written_as_its_scope_first_saw_it() -> None:
    memory = canon.ConversationMemory()

    def fenced(data: str, scope: str) -> str:
        text = f"You are a help desk.\n\nThe shop:\n\n```json\n{data}\n```\n\n{RULES}"
        body = {
            "model": "m",
            "messages": [{"role": "system", "content": text}, {"role": "user", "content": "hi"}],
        }
        sent: str = canon.canonicalize(body, "full", memory, scope).body["messages"][0]["content"]
        return sent

    first = fenced('{"name": "Bells", "floors": 2}', "a")
    assert fenced('{"floors": 2,\n "name": "Bells"}', "a") == first
    assert fenced('{"floors": 2.0, "name": "Bells"}', "a") != first
    assert '{"floors": 2, "name": "Bells"}' in fenced('{"floors": 2, "name": "Bells"}', "b")


def test_replayed_notes_and_calls_are_edits_of_their_own() -> None:
    memory = canon.ConversationMemory()
    canon.canonicalize(chat(["one"], "10:11:12"), "full", memory)
    result = canon.canonicalize(chat(["one", "1", "two"], "10:15:40"), "full", memory)
    assert [(edit.rule, edit.path, edit.moved_to) for edit in result.edits] == [
        ("dynamic_values", "messages[0].content", "messages[3].content"),
        ("conversation_memory", "messages[1]", None),
    ]


@pytest.mark.parametrize("policy", ["off", "observe", "safe"])
def test_policies_that_do_not_replay_remember_nothing(policy: str) -> None:
    memory = canon.ConversationMemory()
    canon.canonicalize(chat(["one"], "10:11:12"), policy, memory)
    assert isinstance(memory.store, canon.memory.LocalStore)
    assert len(memory.store) == 0


def test_canonical_bodies_stay_as_they_are() -> None:
    memory = canon.ConversationMemory()
    canon.canonicalize(chat(["one"], "10:11:12"), "full", memory)
    once = canon.canonicalize(chat(["one", "1", "two"], "10:15:40"), "full", memory).body
    assert canon.canonicalize(once, "full", memory).body == once
    assert canon.canonicalize(once, "full").body == once


def test_threads_that_share_a_memory_mix_nothing_up() -> None:
    memory, wrong = canon.ConversationMemory(all_recorded=True), []

    def converse(number: int) -> None:
        turns, sent, scope = ["hello"], [], f"tenant{number % 2}"
        for turn in range(12):
            time = f"{number:02}:00:{turn:02}"
            body = canon.canonicalize(chat(turns, time), "full", memory, scope).body
            text = json.dumps(body)
            if time not in text or any(f" {other:02}:00:" in text for other in range(8) if other != number):
                wrong.append(text)
            if items(body)[: len(sent)] != sent:
                wrong.append(text)
            sent = items(body)
            answer = f"This is answer {turn} of conversation {number}"
            memory.record(body, {"choices": [{"message": {"content": answer}}]}, scope)
            turns += [answer, f"question {turn}"]

    threads = [threading.Thread(target=converse, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
