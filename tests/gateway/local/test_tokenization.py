"""Tokens for engines in this process, in the forms that clients of vLLM and SGLang use."""

import pytest

from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import CONTEXT, MODEL


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
def test_a_text_becomes_ids(server: Running, path: str) -> None:
    answer = server.http.post(path, json={"model": MODEL, "prompt": "Hé"})
    assert answer.json() == {"tokens": [72, 195, 169], "count": 3, "max_model_len": CONTEXT}


def test_the_model_need_not_be_named(server: Running) -> None:
    assert server.http.post("/tokenize", json={"prompt": "a"}).json()["tokens"] == [97]
    assert server.http.post("/detokenize", json={"tokens": [97]}).json() == {"prompt": "a", "text": "a"}


def test_several_texts_become_several_lists(server: Running) -> None:
    answer = server.http.post("/tokenize", json={"prompt": ["ab", "c"], "return_token_strs": True}).json()
    assert (answer["tokens"], answer["count"]) == ([[97, 98], [99]], [2, 1])
    assert answer["token_strs"] == [["a", "b"], ["c"]]


def test_a_chat_is_rendered_as_it_would_be_sent(server: Running) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    tokens = server.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    server.http.post("/v1/chat/completions", json={"model": MODEL, "messages": messages})
    assert tokens == server.engine.requests[-1].prompt_ids.tolist()


def test_lists_of_ids_become_texts(server: Running) -> None:
    answer = server.http.post("/detokenize", json={"tokens": [[97, 98], [99]]})
    assert answer.json()["text"] == ["ab", "c"]
    assert server.http.post("/detokenize", json={"tokens": []}).json()["text"] == ""


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "Hi"}]}, "prompt"),
        ("/tokenize", {"prompt": 7}, "prompt"),
        ("/tokenize", {"prompt": []}, "prompt"),
        ("/tokenize", {"prompt": "a", "chat_template": "{{ x }}"}, "chat_template"),
        ("/tokenize", {"messages": [{"role": "tool", "content": "x"}]}, "messages[0]"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ("/detokenize", {"tokens": [[1], 2]}, "tokens"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_what_is_wrong_is_named(server: Running, path: str, body, param: str) -> None:
    answer = server.http.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


def test_an_unknown_model_is_not_found(server: Running) -> None:
    answer = server.http.post("/tokenize", json={"model": "nobody", "prompt": "a"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    "path",
    ["/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/v1/rerank", "/rerank"],
)
def test_what_the_engine_here_has_not_is_refused_by_its_name(server: Running, path: str) -> None:
    answer = server.http.post(path, json={"model": MODEL})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "unsupported_route")
    assert "The engine embedded has no /v1/" in error["message"]
    assert "/v1/chat/completions, /v1/completions, /tokenize, /detokenize" in error["message"]


def test_no_response_is_kept_here(server: Running) -> None:
    assert server.http.get("/v1/responses/resp_1").json()["error"]["code"] == "response_not_found"
