"""Tool calls come back as the model wrote them."""

from typing import Any

import pytest

from canon.memory import ConversationMemory
from tests.canon.memory.sender import answer, calling, send, tool, user

ASK = [user("how many?")]


def replayed(arguments: Any, *, recorded: Any = '{"n":1,"at":"x"}', id_: str = "c1") -> dict[str, Any]:
    """The assistant's message of the second turn, as it goes out."""
    memory = ConversationMemory()
    memory.record(send(memory, ASK), answer(None, ("c1", "stock", recorded)))
    sent = send(memory, [*ASK, calling(id_, arguments), tool(id_, "four"), user("and?")])
    assert sent["messages"][3]["tool_call_id"] == sent["messages"][2]["tool_calls"][0]["id"]
    message: dict[str, Any] = sent["messages"][2]["tool_calls"][0]
    return message


def test_equal_arguments_get_the_bytes_that_the_model_wrote() -> None:
    assert replayed('{ "at": "\\u0078", "n": 1 }')["function"]["arguments"] == '{"n":1,"at":"x"}'


@pytest.mark.parametrize(
    "arguments",
    [
        '{"n":1.0,"at":"x"}',
        '{"n":true,"at":"x"}',
        '{"n":1e0,"at":"x"}',
        '{"n":"1","at":"x"}',
        '{"n":1,"at":"y"}',
        '{"n":1,"at":"x","n":1}',
        '{"n":1}',
        "no JSON",
    ],
)
def test_other_arguments_stay_as_the_client_sent_them(arguments: str) -> None:
    assert replayed(arguments)["function"]["arguments"] == arguments


def test_objects_stay_objects_and_get_the_models_order() -> None:
    arguments = replayed({"at": "x", "n": 1})["function"]["arguments"]
    assert list(arguments.items()) == [("n", 1), ("at", "x")]


def test_a_new_id_of_an_equal_call_becomes_the_recorded_one_with_its_result() -> None:
    assert replayed('{"n":1,"at":"x"}', id_="random")["id"] == "c1"


def test_a_client_that_makes_new_ids_each_time_sends_the_same_prefix() -> None:
    memory = ConversationMemory()
    memory.record(send(memory, ASK), answer(None, ("c1", "stock", "{}")))
    first = send(memory, [*ASK, calling("a1", "{}"), tool("a1", "four")])
    memory.record(first, answer(None, ("c2", "stock", "{}")))
    turns = [*ASK, calling("b1", "{}"), tool("b1", "four"), calling("b2", "{}"), tool("b2", "five")]
    second = send(memory, turns)
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][4]["tool_calls"][0]["id"] == second["messages"][5]["tool_call_id"] == "c2"


def test_ids_stay_unique_and_short() -> None:
    memory = ConversationMemory()
    long = "x" * 41
    memory.record(send(memory, ASK), answer(None, (long, "stock", "{}")))
    sent = send(memory, [*ASK, calling("a", "{}"), tool("a", "four"), user("and?")])
    assert sent["messages"][2]["tool_calls"][0]["id"] == "a"
    memory = ConversationMemory()
    memory.record(send(memory, ASK), answer(None, ("taken", "stock", "{}")))
    turns = [*ASK, calling("a", "{}"), tool("a", "four"), calling("taken", "{}"), tool("taken", "five")]
    sent = send(memory, turns)
    assert [m["tool_calls"][0]["id"] for m in sent["messages"] if m.get("tool_calls")] == ["a", "taken"]


def test_what_a_client_says_is_never_a_source() -> None:
    memory = ConversationMemory()
    turns = [*ASK, calling("c1", '{"n": 1}'), tool("c1", "four"), user("and?")]
    send(memory, turns)
    again = send(memory, [*ASK, calling("c2", '{"n":1}'), tool("c2", "four"), user("and?")])
    assert again["messages"][2]["tool_calls"][0] == calling("c2", '{"n":1}')["tool_calls"][0]


def test_an_answer_may_be_recorded_under_the_body_as_it_came() -> None:
    memory = ConversationMemory()
    raw = {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, *ASK]}
    send(memory, ASK, ["Time: 9"])
    memory.record(raw, answer(None, ("c1", "stock", '{"n":1}')))
    sent = send(memory, [*ASK, calling("c1", '{"n": 1}'), tool("c1", "four")], ["Time: 9"])
    assert sent["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"n":1}'
    assert "Time: 9" in sent["messages"][1]["content"]


@pytest.mark.parametrize(
    "response", [None, 1, "x", [], {}, {"choices": 1}, {"choices": [1]}, {"output": [1, {}]}]
)
def test_unknown_responses_are_ignored(response: Any) -> None:
    memory = ConversationMemory()
    memory.record(send(memory, ASK), response)
    memory.record(None, response)
