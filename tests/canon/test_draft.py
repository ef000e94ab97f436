import copy

from canon.requests.draft import Draft


def test_what_came_in_is_never_written_to_and_what_was_not_edited_is_shared():
    body = {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]}
    held = copy.deepcopy(body)
    draft = Draft(body)
    assert not draft.changed
    draft.set(("messages", 0, "content"), "c")
    draft.set(("messages", 0, "content"), "d")
    assert body == held
    assert draft.changed
    assert draft.body["messages"][0]["content"] == "d"
    assert draft.body["messages"][1] is body["messages"][1]


def test_a_list_grows_at_its_end():
    draft = Draft({"messages": [1]})
    draft.set(("messages", 1), 2)
    assert draft.body == {"messages": [1, 2]}
