"""Keys are set in a JSON text, and nothing else of it changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.remote.json_patch import patched, without

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
keys = st.sampled_from(["a", "b", 'q"\\', "stream", "é"])


@given(
    body=st.dictionaries(keys, values, max_size=4),
    new=st.dictionaries(keys, values, max_size=3),
    indent=st.sampled_from([None, 2]),
)
def test_a_patched_body_is_the_body_with_those_keys(body: dict, new: dict, indent: int | None):
    text = json.dumps(body, indent=indent).encode()
    result = patched(text, {key: json.dumps(value).encode() for key, value in new.items()})
    assert json.loads(result) == {**body, **new}


def test_spelling_and_order_of_all_else_stay():
    body = b'{ "seed": 9007199254740993, "t": 1.10,"x":{"stream":[1E2,-0]} , "stream":false }'
    assert patched(body, {"stream": b"true"}) == body.replace(b"false }", b"true}")
    assert patched(body, {"salt": b'"s"'}) == b'{"salt":"s",' + body[1:]


def test_of_a_key_that_is_there_twice_both_are_set():
    assert patched(b'{"a":1,"a":2}', {"a": b"3"}) == b'{"a":3,"a":3}'


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"null"])
def test_what_is_no_object_is_refused(body: bytes):
    with pytest.raises(ValueError, match="no JSON object"):
        patched(body, {"a": b"1"})


@given(
    body=st.dictionaries(keys, values, max_size=5),
    names=st.sets(keys, max_size=3),
    indent=st.sampled_from([None, 2]),
)
def test_a_body_without_keys_is_the_body_of_the_others(body: dict, names: set, indent: int | None):
    text = json.dumps(body, indent=indent).encode()
    left = without(text, names)
    assert json.loads(left) == {key: value for key, value in body.items() if key not in names}
    assert left == text or names & body.keys()


def test_of_a_key_that_is_there_twice_both_go_also_where_they_are_escaped():
    assert without(b'{"a":1,"b":[1E2],"\\u0061":2}', {"a"}) == b'{"b":[1E2]}'
