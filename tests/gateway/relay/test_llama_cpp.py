"""llama.cpp's own server behind the gateway, asked by the real SDK."""

import itertools
from collections.abc import Iterator

import openai
import pytest

from engine_adapters.remote.llama_cpp import LlamaCppEngine
from gateway.canonical.policies import PolicyFor
from gateway.relay.remote import Remote
from gateway.settings import CanonSettings, GatewaySettings
from tests.gateway.relay.serving import Relaying, relaying
from tests.llama_cpp_server import CONTEXT, LlamaCppServer

MODEL = "smollm2"
_topics = itertools.count()


@pytest.fixture(scope="module")
def shared(llama_cpp: LlamaCppServer) -> Iterator[Relaying]:
    remote = Remote(LlamaCppEngine("llama", llama_cpp.url), {MODEL: "default"})
    canon = CanonSettings((PolicyFor("full"),))
    with relaying([remote], GatewaySettings(canon=canon)) as it:
        yield it


@pytest.fixture
def gateway(shared: Relaying) -> Relaying:
    shared.rows.kept.clear()
    return shared


def prompt() -> list[dict[str, str]]:
    """A chat that no test has sent before, from its first words on."""
    topic = next(_topics)
    return [{"role": "user", "content": f"{topic} is my number. " + f"Say something about {topic}. " * 20}]


def test_the_second_request_reports_what_the_first_left_behind(gateway: Relaying) -> None:
    messages = prompt()
    ask = gateway.sdk.chat.completions.create
    first = ask(model=MODEL, messages=messages, max_tokens=4).usage
    second = ask(model=MODEL, messages=messages, max_tokens=4).usage
    template = 40  # what every chat of this model begins with may be there already
    assert first.prompt_tokens_details.cached_tokens < template
    assert second.prompt_tokens_details.cached_tokens == second.prompt_tokens - 1
    row = gateway.rows.last(2)
    assert (row.engine, row.model, row.route, row.status) == ("llama", MODEL, "chat", 200)
    assert (row.prompt, row.reused, row.recomputed) == (second.prompt_tokens, second.prompt_tokens - 1, 1)
    assert (row.reuse_status, row.completion, row.finish) == ("reported", 4, "length")
    assert row.reuse_source == "usage.prompt_tokens_details.cached_tokens"


def test_a_stream_shows_usage_only_to_who_asks_and_the_ledger_has_it_always(gateway: Relaying) -> None:
    messages = prompt()
    ask = gateway.sdk.chat.completions.create
    chunks = list(ask(model=MODEL, messages=messages, max_tokens=4, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    options = {"include_usage": True}
    *others, last = ask(model=MODEL, messages=messages, max_tokens=4, stream=True, stream_options=options)
    assert all(chunk.usage is None for chunk in others)
    assert last.usage.prompt_tokens_details.cached_tokens == last.usage.prompt_tokens - 1
    unasked, asked = gateway.rows.last(1), gateway.rows.last(2)
    assert unasked.prompt == asked.prompt == last.usage.prompt_tokens
    assert asked.reused == last.usage.prompt_tokens - 1
    assert unasked.stream
    assert unasked.arrival < unasked.first_token < unasked.end


def test_the_whole_account_comes_with_the_header(gateway: Relaying) -> None:
    header = {"x-kvgate-usage": "full"}
    messages = [{"role": "system", "content": "Be brief.\r\n\r\n\r\n\r\nBe kind. "}, *prompt()]
    ask = gateway.sdk.chat.completions.with_raw_response.create
    raw = ask(model=MODEL, messages=messages, max_tokens=2, extra_headers=header)
    usage = raw.parse().usage
    told = usage.kvgate
    assert told["status"] == "reported"
    assert told["reused"] + told["recomputed"] == usage.prompt_tokens
    assert told["canon_edits"] >= 1
    assert (told["block_size"], told["by_tier"], told["predicted"]) == (1, None, None)
    assert raw.headers["x-kvgate-reuse"] == f"reported; reused={told['reused']}; prompt={usage.prompt_tokens}"
    assert gateway.rows.one().canon_edits == told["canon_edits"]


def test_a_prompt_beyond_the_context_is_the_clients_error(gateway: Relaying) -> None:
    messages = [{"role": "user", "content": "word " * (2 * CONTEXT)}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refused:
            gateway.sdk.chat.completions.create(model=MODEL, messages=messages, stream=stream)
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.type == "invalid_request_error"
    row = gateway.rows.last(2)
    assert (row.status, row.error, row.reuse_status) == (400, "context_length_exceeded", "not_reported")


def test_completions_responses_and_messages_are_accounted_for(gateway: Relaying) -> None:
    text = "Once upon a time, " * 10
    gateway.sdk.completions.create(model=MODEL, prompt=text, max_tokens=2)
    again = gateway.sdk.completions.create(model=MODEL, prompt=text, max_tokens=2)
    assert gateway.rows.last(2).reused == again.usage.prompt_tokens - 1
    answer = gateway.sdk.responses.create(model=MODEL, input=text, max_output_tokens=2)
    row = gateway.rows.last(3)
    assert (row.route, row.prompt) == ("responses", answer.usage.input_tokens)
    assert row.reused == answer.usage.input_tokens_details.cached_tokens
    body = {"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
    said = gateway.http.post("/v1/messages", json=body).json()["usage"]
    row = gateway.rows.last(4)
    assert row.reused == said["cache_read_input_tokens"]
    assert row.prompt == said["cache_read_input_tokens"] + said["input_tokens"]


def test_a_route_that_the_server_was_not_started_with_is_refused_in_our_shape(gateway: Relaying) -> None:
    answer = gateway.http.post("/v1/embeddings", json={"model": MODEL, "input": "Hi"})
    assert answer.status_code == 501
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert gateway.rows.one().error


def test_tokens_are_told_in_the_words_of_other_engines(gateway: Relaying) -> None:
    text = "Héllo 🙂 world"
    answer = gateway.http.post("/tokenize", json={"model": MODEL, "prompt": text, "return_token_strs": True})
    said = answer.json()
    assert said["count"] == len(said["tokens"]) == len(said["token_strs"])
    assert said["max_model_len"] == CONTEXT
    assert all(type(token) is int for token in said["tokens"])
    bare = {"model": MODEL, "prompt": text, "add_special_tokens": False}
    tokens = gateway.http.post("/v1/tokenize", json=bare).json()["tokens"]
    back = gateway.http.post("/detokenize", json={"model": MODEL, "tokens": tokens}).json()
    assert back["prompt"] == back["text"] == text
    own = gateway.http.post("/tokenize", json={"model": MODEL, "content": text}).json()
    assert own == {"tokens": tokens}
    assert gateway.rows.kept == []


def test_tokens_of_a_message_are_counted(gateway: Relaying) -> None:
    body = {"model": MODEL, "max_tokens": 2, "messages": prompt()}
    counted = gateway.http.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]
    said = gateway.http.post("/v1/messages", json=body).json()["usage"]
    assert counted == said["input_tokens"] + said["cache_read_input_tokens"]


def test_what_this_server_cannot_do_is_refused_by_its_name(gateway: Relaying) -> None:
    messages = gateway.http.post("/tokenize", json={"model": MODEL, "messages": prompt()})
    assert (messages.status_code, messages.json()["error"]["param"]) == (400, "prompt")
    name = gateway.sdk.responses.create(model=MODEL, input="Hi", max_output_tokens=1).id
    answer = gateway.http.get(f"/v1/responses/{name}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unsupported_route")
    assert "The engine llama has no GET /v1/responses/{id}" in answer.json()["error"]["message"]
    ranked = gateway.http.post("/v1/rerank", json={"model": MODEL, "query": "a", "documents": ["b"]})
    assert ranked.status_code in (404, 501)
