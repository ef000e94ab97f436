"""Tokens of llama.cpp's server in the words of others."""

import json

import pytest

from engine_adapters.errors import InvalidRequestError
from engine_adapters.remote.llama_cpp_tokens import text_answered, tokens_answered, tokens_asked
from engine_adapters.remote.relay import RelayRequest


def asked(**fields: object) -> dict[str, bytes]:
    body = json.dumps(fields).encode()
    return tokens_asked(RelayRequest("r", "tokenize", body, False, "m"), "llama")


def test_a_text_is_asked_for_in_its_words() -> None:
    assert asked(prompt="Hé") == {"content": '"Hé"'.encode(), "add_special": b"true", "with_pieces": b"false"}
    assert asked(prompt="a", add_special_tokens=False, return_token_strs=True) == {
        "content": b'"a"',
        "add_special": b"false",
        "with_pieces": b"true",
    }


def test_its_own_form_goes_on_as_it_is() -> None:
    assert asked(content="a", prompt="b") == {}


@pytest.mark.parametrize("fields", [{"prompt": ["a"]}, {"messages": []}, {}])
def test_what_is_no_text_is_refused(fields) -> None:
    with pytest.raises(InvalidRequestError, match="The engine llama tokenizes one text"):
        asked(**fields)


def test_the_answer_has_what_others_have() -> None:
    assert json.loads(tokens_answered(b'{"tokens":[5,6]}', 100)) == {
        "tokens": [5, 6],
        "count": 2,
        "max_model_len": 100,
    }
    pieces = b'{"tokens":[{"id":5,"piece":"He"},{"id":6,"piece":[195]}]}'
    assert json.loads(tokens_answered(pieces, None)) == {
        "tokens": [5, 6],
        "count": 2,
        "max_model_len": None,
        "token_strs": ["He", "\ufffd"],
    }
    assert json.loads(text_answered(b'{"content":"Hi"}')) == {"content": "Hi", "prompt": "Hi", "text": "Hi"}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"error":1}', b"x"])
def test_any_other_answer_passes(body: bytes) -> None:
    assert tokens_answered(body, 1) == body
    assert text_answered(body) == body
