"""Through the gateway as it is configured: completions at SGLang's native route, chats with the ids made here."""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

from canon.tokens import PromptTokenizer
from gateway.config.build import pool_of
from gateway.config.engines import SelfHosted
from gateway.ledger.row import LedgerRow
from gateway.local.sglang_process import rendered
from gateway.sglang_native.engine import WHOLE_TEXTS_FLAG
from tests.gateway.relay.fake_engine import MODEL, Asked, Connection, FakeEngine, event, fake_engine, whole
from tests.gateway.relay.serving import Relaying, relaying
from tests.waiting import PATIENCE_S, wait_until

TEXT = "Tides follow the moon."
CHAT = [{"role": "user", "content": "Why do tides follow the moon?"}]
SALT = "s" * 16
NATIVE = "meta_info.cached_tokens"


@pytest.fixture(scope="module")
def prompts(smollm2_folder: Path) -> PromptTokenizer:
    return PromptTokenizer.from_folder(smollm2_folder, control_tokens_in_content="allow")


@dataclass(slots=True)
class Server:
    """What an SGLang answers to what the gateway asks of it by itself, and a script for `/generate`."""

    prompts: PromptTokenizer
    generate: Callable[[Connection, Asked], None]
    settings: dict[str, Any] = field(default_factory=dict)
    differs: str = "\n\n\nnothing"  # texts with this in them it encodes otherwise

    def __call__(self, connection: Connection, asked: Asked) -> None:
        if asked.path == "/server_info":
            return _said(
                connection, {"context_length": 512, "page_size": 1, "version": "0.5.23"} | self.settings
            )
        if asked.path == "/tokenize":
            return self._tokenize(connection, asked.body)
        if asked.path == "/generate":
            return self.generate(connection, asked)
        if asked.path == "/v1/completions":
            return connection.reply(_completion("by its own route"))
        if asked.path == "/v1/chat/completions":
            return connection.reply(whole(3))
        return connection.reply(b"{}", "404 Not Found")

    def _tokenize(self, connection: Connection, body: dict[str, Any]) -> None:
        if self.differs in json.dumps(body):
            return _said(connection, {"tokens": [1, 2, 3]})
        if "prompt" in body:
            return _said(connection, {"tokens": self.prompts.encode(body["prompt"]).tolist()})
        ids = rendered(self.prompts)(body)
        if ids is None:
            return _said(connection, {"message": "the template does not take it"}, "400 Bad Request")
        return _said(connection, {"tokens": list(ids)})


def _said(connection: Connection, answer: dict[str, Any], status: str = "200 OK") -> None:
    connection.reply(json.dumps(answer).encode(), status)


def _completion(text: str) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return json.dumps({"id": "c", "object": "text_completion", "choices": [choice], "usage": usage}).encode()


def native(text: str, tokens: int, finish: dict[str, Any] | None = None, **meta: Any) -> bytes:
    """One event as `/generate` sends them: each has the whole text so far."""
    told = {"prompt_tokens": 6, "completion_tokens": tokens, "finish_reason": finish} | meta
    return event({"text": text, "meta_info": told})


REUSED = {
    "cached_tokens": 5,
    "cached_tokens_details": {"device": 3, "host": 2, "storage": 0, "storage_backend": "file"},
}
ANSWER = (
    native("They", 1),
    native("They do", 2, {"type": "length", "length": 2}, **REUSED),
    b"data: [DONE]\n\n",
)


def answering(*events: bytes) -> Callable[[Connection, Asked], None]:
    def script(connection: Connection, _: Asked) -> None:
        connection.stream()
        for each in events:
            connection.chunk(each)
        connection.end()

    return script


@dataclass(slots=True)
class Pair:
    gateway: Relaying
    engine: FakeEngine
    server: Server

    @property
    def generated(self) -> list[dict[str, Any]]:
        """Bodies that came to `/generate`."""
        return self.asked("/generate")

    def asked(self, path: str) -> list[dict[str, Any]]:
        return [each.body for each in self.engine.asked if each.path == path]


@contextmanager
def serving(
    prompts: PromptTokenizer,
    folder: Path,
    action: str = "report",
    models: dict[str, str] | None = None,
    **more: Any,
) -> Iterator[Pair]:
    """Loads the tokenizer anew, which takes a while."""
    server = Server(prompts, answering(*ANSWER), **more)
    with fake_engine(server) as engine:
        given = SelfHosted(
            kind="sglang",
            name="sgl",
            url=engine.url,
            tokenizer=folder,
            native=True,
            control_tokens_in_content=action,
            models=models or {},
        )
        with relaying([], pools=[pool_of(given, "engines[0]", {})]) as gateway:
            yield Pair(gateway, engine, server)


@pytest.fixture(scope="module")
def _one_for_all(prompts: PromptTokenizer, smollm2_folder: Path) -> Iterator[Pair]:
    with serving(prompts, smollm2_folder) as pair:
        yield pair


@pytest.fixture
def pair(_one_for_all: Pair) -> Pair:
    """As if it had just begun."""
    wait_until(
        lambda: not any(each.running for each in _one_for_all.gateway.served.pools[0].members), "its end"
    )
    _one_for_all.engine.asked.clear()
    _one_for_all.server.generate = answering(*ANSWER)
    return _one_for_all


def complete(pair: Pair, **more: Any) -> Any:
    return pair.gateway.sdk.completions.create(**({"model": MODEL, "prompt": TEXT, "temperature": 0} | more))


def row_of(pair: Pair, answer: Any) -> LedgerRow:
    """Rows of other tests may still come."""
    headers = getattr(answer, "response", None)
    name = answer._request_id if headers is None else headers.headers["x-request-id"]
    return pair.gateway.rows.of(name)


def test_a_text_goes_natively_as_token_ids_and_its_tiers_are_in_the_ledger(
    pair: Pair, prompts: PromptTokenizer
):
    answer = complete(pair, max_tokens=2, stop=["\n"], seed=7)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("They do", "length")
    assert (answer.object, answer.model, answer.usage.total_tokens) == ("text_completion", MODEL, 8)
    assert answer.usage.prompt_tokens_details.cached_tokens == 5
    (asked,) = pair.generated
    assert asked["input_ids"] == prompts.encode(TEXT).tolist()
    assert (
        asked["sampling_params"].items() >= {"max_new_tokens": 2, "stop": ["\n"], "sampling_seed": 7}.items()
    )
    assert "text" not in asked
    assert "cache_salt" not in asked  # there is one tenant, and nobody to keep apart
    row = row_of(pair, answer)
    assert (row.prompt, row.reused, row.reuse_status) == (6, 5, "reported")
    assert (dict(row.by_tier), row.reuse_source) == ({"device": 3, "host": 2, "disk": 0}, NATIVE)


def test_a_stream_is_one_of_openai_s_chunks_with_usage_only_for_who_asked(pair: Pair):
    asked = list(complete(pair, stream=True, stream_options={"include_usage": True}))
    assert "".join(each.choices[0].text for each in asked if each.choices) == "They do"
    assert asked[-1].usage.prompt_tokens_details.cached_tokens == 5
    assert [each.choices[0].finish_reason for each in asked if each.choices][-1] == "length"
    untold = complete(pair, stream=True)
    assert all(each.usage is None for each in untold)
    row = row_of(pair, untold)
    assert (row.reused, row.finish, row.stream) == (5, "length", True)
    assert row.first_token is not None


def test_all_that_is_known_is_told_to_who_asks_for_it(pair: Pair):
    answer = complete(pair, extra_headers={"x-kvgate-usage": "full"})
    told = answer.usage.model_extra["kvgate"]
    assert told["by_tier"] == {"device": 3, "host": 2, "disk": 0}
    assert (told["reused"], told["recomputed"], told["source"]) == (5, 1, "meta_info.cached_tokens")


def test_log_probabilities_and_several_answers(pair: Pair):
    def said(index: int) -> bytes:
        logprobs = {
            "output_token_logprobs": [[-0.5, 11, "They"], [-0.25, 12, " do"]],
            "output_top_logprobs": [[[-0.5, 11, "They"]], [[-0.25, 12, " do"]]],
        }
        meta = {"prompt_tokens": 6, "completion_tokens": 2, "finish_reason": {"type": "stop"}, **REUSED}
        return event({"index": index, "text": "They do", "meta_info": meta | logprobs})

    pair.server.generate = answering(said(1), said(0), b"data: [DONE]\n\n")
    answer = complete(pair, n=2, logprobs=1)
    assert [each.index for each in answer.choices] == [0, 1]
    assert answer.choices[1].logprobs.token_logprobs == [-0.5, -0.25]
    assert answer.choices[0].logprobs.top_logprobs[1] == {" do": -0.25}
    assert answer.usage.completion_tokens == 4


def test_the_model_has_the_name_that_the_client_knows(prompts: PromptTokenizer, smollm2_folder: Path):
    with serving(prompts, smollm2_folder, models={"mine": MODEL}) as renamed:
        assert complete(renamed, model="mine").model == "mine"
        assert {each.model for each in complete(renamed, model="mine", stream=True)} == {"mine"}
        assert len(renamed.generated) == 2


def test_a_client_s_salt_goes_with_it(pair: Pair):
    complete(pair, extra_body={"cache_salt": SALT})
    assert pair.generated[0]["cache_salt"] == SALT


def test_no_two_requests_have_one_name_there(pair: Pair):
    for _ in range(2):
        complete(pair, extra_headers={"x-request-id": "mine"})
    names = {each["rid"] for each in pair.generated}
    assert len(names) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"echo": True},
        {"prompt": [TEXT, "Two"]},
        {"extra_body": {"regex": "a+"}},
        {"suffix": "x"},
        {"best_of": 2},
    ],
)
def test_what_natively_would_be_another_request_goes_to_the_server_s_own_route(
    pair: Pair, more: dict[str, Any]
):
    assert complete(pair, **more).choices[0].text == "by its own route"
    assert not pair.generated


def test_texts_that_it_encodes_otherwise_stay_texts_and_ids_stay_ids(
    prompts: PromptTokenizer, smollm2_folder: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "kvgate.sglang")
    with serving(prompts, smollm2_folder, differs="two blanks") as pair:
        assert complete(pair).choices[0].text == "by its own route"
        assert complete(pair, prompt=[5, 6, 7]).choices[0].text == "They do"
        assert pair.generated[0]["input_ids"] == [5, 6, 7]
        assert "completions" not in pair.gateway.served.remotes[0].able.as_ids
        said = [each for each in caplog.records if "makes these prompts itself" in each.getMessage()]
        differences = [each.fields["difference"] for each in said]
        assert differences[0].startswith("completions: probe 1 differs from token")
        assert differences[1:] == ["tools: every probe is refused"]


def test_a_server_that_streams_incrementally_is_not_asked_natively_and_says_why(
    prompts: PromptTokenizer, smollm2_folder: Path
):
    settings = {"incremental_streaming_output": True}
    with serving(prompts, smollm2_folder, settings=settings) as pair:
        assert complete(pair).choices[0].text == "by its own route"
        assert WHOLE_TEXTS_FLAG in pair.gateway.served.remotes[0].able.missing


def test_ids_that_the_model_has_not_never_reach_the_engine(pair: Pair):
    for prompt, param in (([5, 900_000], "prompt"), ([[5], [900_000]], "prompt[1]"), ([-1], "prompt")):
        with pytest.raises(openai.BadRequestError, match="vocabulary") as refused:
            complete(pair, prompt=prompt)
        assert refused.value.param == param
    with pytest.raises(openai.BadRequestError, match="vocabulary") as refused:
        pair.gateway.sdk.embeddings.create(model=MODEL, input=[5, 900_000])
    assert refused.value.param == "input"
    assert not pair.engine.asked


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_refuses_has_its_status(pair: Pair, stream: bool):
    error = event({"error": {"message": "top_k must be small", "type": "invalid_request_error", "code": 400}})
    pair.server.generate = answering(error, b"data: [DONE]\n\n")
    with pytest.raises(openai.BadRequestError, match="top_k must be small") as refused:
        list(complete(pair, stream=stream))
    assert row_of(pair, refused.value).status == 400


def test_a_prompt_that_does_not_fit_is_said_in_the_one_shape(pair: Pair):
    with pytest.raises(openai.BadRequestError) as refused:
        complete(pair, prompt=[5] * 600)
    assert refused.value.code == "context_length_exceeded"
    assert not pair.generated


def test_a_full_engine_and_one_that_breaks_are_told(pair: Pair):
    def full(connection: Connection, _: Asked) -> None:
        connection.reply(b'{"error": {"message": "The request queue is full."}}', "503 Service Unavailable")

    pair.server.generate = full
    with pytest.raises(openai.APIStatusError) as refused:
        complete(pair)
    assert refused.value.status_code in (429, 503)
    pair.server.generate = answering(native("They", 1), b"data: [DONE]\n\n")  # without a reason
    with pytest.raises(openai.InternalServerError):
        complete(pair)


def test_an_engine_that_dies_within_a_stream_is_no_clean_end(pair: Pair):
    go_on = threading.Event()

    def dies(connection: Connection, _: Asked) -> None:
        connection.stream()
        connection.chunk(native("They", 1))
        go_on.wait(PATIENCE_S)
        connection.reset()

    pair.server.generate = dies
    seen: list[str] = []
    answer = complete(pair, stream=True)

    def read() -> None:
        for each in answer:
            seen.append(each.choices[0].text)
            go_on.set()

    with pytest.raises(openai.APIError):
        read()
    assert seen == ["They"]
    row = row_of(pair, answer)
    assert (row.reuse_status, row.reused) == ("not_reported", None)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_request_in_the_engine(pair: Pair, stream: bool):
    began, ended = threading.Event(), threading.Event()

    def endless(connection: Connection, _: Asked) -> None:
        connection.stream()
        connection.chunk(native("They", 1))
        began.set()
        if connection.wait_for_its_end():
            ended.set()

    pair.server.generate = endless
    body = {"model": MODEL, "prompt": TEXT, "stream": stream}
    client = threading.Thread(target=_leave_after, args=(pair.gateway.port, body, began))
    client.start()
    client.join(PATIENCE_S)
    assert ended.wait(PATIENCE_S)


def _leave_after(port: int, body: dict[str, Any], began: threading.Event) -> None:
    raw = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: {len(raw)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head + raw)
        began.wait(PATIENCE_S)


def chat(pair: Pair, messages: Sequence[dict[str, Any]] = CHAT, **more: Any) -> dict[str, Any]:
    """The body that the engine's chat route gets."""
    answer = pair.gateway.sdk.chat.completions.create(model=MODEL, messages=messages, **more)
    assert row_of(pair, answer).reused == 3
    return pair.asked("/v1/chat/completions")[-1]


def test_a_chat_that_both_render_alike_goes_with_its_ids_to_the_chat_route(
    pair: Pair, prompts: PromptTokenizer
):
    assert "text" in pair.gateway.served.remotes[0].able.as_ids
    body = chat(pair, max_tokens=5)
    assert body["input_ids"] == prompts.chat(CHAT).ids.tolist()
    assert (body["messages"], body["max_tokens"]) == (CHAT, 5)  # its parsers are there


def test_other_chats_are_left_to_it(pair: Pair, prompts: PromptTokenizer, smollm2_folder: Path):
    with serving(prompts, smollm2_folder, differs="And tomorrow?") as other:
        assert "text" not in other.gateway.served.remotes[0].able.as_ids
        assert "input_ids" not in chat(other)
    assert "input_ids" not in chat(pair, extra_body={"documents": ["d"]})
    assert "input_ids" not in chat(pair, reasoning_effort="low")
    assert "input_ids" not in chat(pair, extra_body={"add_generation_prompt": False})


def test_special_tokens_that_were_typed_act_in_these_chats_only_where_the_operator_lets_them(
    pair: Pair, prompts: PromptTokenizer, smollm2_folder: Path
):
    typed = [{"role": "user", "content": "a<|im_end|>b"}]
    acting = prompts.chat(typed).ids.tolist()
    assert chat(pair, typed)["input_ids"] != acting
    with serving(prompts, smollm2_folder, "allow") as allowing:
        assert chat(allowing, typed)["input_ids"] == acting
