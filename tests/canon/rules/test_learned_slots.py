from typing import Any

import canon
from canon.policy import Policy

PROSE = "You are the help desk of a bicycle shop.\nAnswer in two sentences at most."
ACTING = Policy.named("full").with_rules({"learned_slots": "act"})


def request(value: str, *turns: str, line: str = "Build channel: {}") -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return {"messages": [{"role": "system", "content": f"{PROSE}\n{line.format(value)}"}, *messages]}


def teach(memory: canon.ConversationMemory, line: str = "Build channel: {}") -> None:
    for at in range(10):
        canon.canonicalize(request(f"v{at}", f"question {at}", line=line), ACTING, memory)


def system_of(body: dict[str, Any]) -> str:
    text: str = body["messages"][0]["content"]
    return text


def test_a_confirmed_slot_moves_in_a_new_conversation_where_the_policy_lets_it():
    memory = canon.ConversationMemory()
    teach(memory)
    body = canon.canonicalize(request("new", "hi"), ACTING, memory).body
    assert system_of(body) == PROSE
    assert body["messages"][-1]["content"] == "hi\n\n[context]\nBuild channel: new\n[/context]"


def test_by_default_it_is_suggested():
    memory = canon.ConversationMemory()
    teach(memory)
    result = canon.canonicalize(request("new", "hi"), "full", memory)
    assert system_of(result.body) == f"{PROSE}\nBuild channel: new"
    assert [(finding.rule, finding.values) for finding in result.findings] == [
        ("learned_slots", ("Build channel: new",))
    ]


def test_a_conversation_that_began_before_keeps_the_line():
    memory = canon.ConversationMemory()
    canon.canonicalize(request("old", "hi"), ACTING, memory)
    teach(memory)
    body = canon.canonicalize(request("old", "hi", "hello", "and now?"), ACTING, memory).body
    assert system_of(body) == f"{PROSE}\nBuild channel: old"


def test_a_conversation_that_began_with_the_slot_goes_on_with_it():
    memory = canon.ConversationMemory()
    teach(memory)
    first = canon.canonicalize(request("x", "hi"), ACTING, memory).body
    second = canon.canonicalize(request("x", "hi", "hello", "and now?"), ACTING, memory).body
    assert second["messages"][:2] == first["messages"]


def test_scopes_learn_apart():
    memory = canon.ConversationMemory()
    teach(memory)
    body = canon.canonicalize(request("new", "hi"), ACTING, memory, scope="other").body
    assert system_of(body) == f"{PROSE}\nBuild channel: new"


def test_an_order_and_guarded_lines_stay():
    for line in ("Tone: {}", "```\nBuild channel: {}\n```", "> Build channel: {}"):
        memory = canon.ConversationMemory()
        teach(memory, line)
        body = canon.canonicalize(request("new", "hi", line=line), ACTING, memory).body
        assert system_of(body) == f"{PROSE}\n{line.format('new')}"


def test_how_often_a_slot_must_be_confirmed_is_the_operators_to_say():
    for confirmations, moves in ((4, True), (12, False)):
        memory = canon.ConversationMemory(slot_confirmations=confirmations)
        teach(memory)
        body = canon.canonicalize(request("new", "hi"), ACTING, memory).body
        assert (system_of(body) == PROSE) is moves
