"""What holds of an SGLang that gets prompts as token ids. Run against the real server, and against recordings of it."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from canon.tokens import PromptTokenizer
from engine_adapters.embedded.models import cache_dir, resolve_model
from engine_adapters.errors import ContextLengthError, InvalidRequestError
from engine_adapters.remote.relay import RelayRequest
from engine_adapters.remote.sglang import REPORT_FLAG, SGLangEngine
from engine_adapters.reuse.sse import EventSplitter, event_data
from gateway.routing.prompt_tokens import PromptTokens
from gateway.sglang_native.engine import SGLangNativeEngine
from tests.engines.asking import Answer, ask, prompt_ids

HIT = {"device": 299, "host": 0}
NATIVE = "meta_info.cached_tokens"


def named(fact: str) -> Callable[[RelayRequest], str]:
    """Names of requests that are recorded, and that no other fact has."""
    count = iter(range(1000))
    return lambda _: f"{fact}-{next(count)}"


async def native(
    engine: SGLangEngine, fact: str, prompts: PromptTokenizer | None = None
) -> SGLangNativeEngine:
    """The same server, asked natively."""
    made = SGLangNativeEngine("native", engine.server, prompts=prompts, new_id=named(fact))
    await made.detect()
    return made


def its_prompts() -> PromptTokenizer:
    folder = resolve_model(None, cache_dir=cache_dir(os.environ), progress=lambda _: None).path
    return PromptTokenizer.from_folder(folder, control_tokens_in_content="allow")


def payloads(stream: bytes) -> list[dict[str, Any]]:
    data = [event_data(event) for event in EventSplitter().feed(stream)]
    assert data[-1] == b"[DONE]"
    return [json.loads(each) for each in data[:-1]]


def streamed_text(answer: Answer) -> str:
    return "".join(choice["text"] for each in payloads(answer.body) for choice in each["choices"])


async def completions_are_the_same_natively_and_tell_tiers(engine: SGLangEngine) -> None:
    own = await native(engine, "same")
    prompt = prompt_ids(60, 300)
    first = await ask(own, prompt, tokens=True, salt="tenant a")
    assert (first.account.reuse.reused, first.account.reuse.source) == (0, NATIVE)
    plain = await ask(engine, prompt, salt="tenant a")
    again = await ask(own, prompt, tokens=True, salt="tenant a")
    streamed = await ask(own, prompt, tokens=True, salt="tenant a", stream=True)
    other = await ask(own, prompt, tokens=True, salt="tenant b")
    assert (plain.account.reuse.by_tier, again.account.reuse.by_tier) == (HIT, HIT)  # one cache
    assert streamed.account == again.account or streamed.account.reuse == again.account.reuse
    assert other.account.reuse.reused == 0
    said, theirs = json.loads(again.body), json.loads(plain.body)
    assert said["choices"][0]["text"] == theirs["choices"][0]["text"] == streamed_text(streamed)
    assert said["choices"][0]["finish_reason"] == theirs["choices"][0]["finish_reason"] == "length"
    assert said["usage"]["prompt_tokens_details"] == {"cached_tokens": 299}
    assert {key: said["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        "prompt_tokens": 300,
        "completion_tokens": 3,
        "total_tokens": 303,
    }
    assert said["object"] == theirs["object"] == "text_completion"
    for each in (first, again, streamed):
        assert (each.account.finish, each.account.ended, each.account.completion_tokens) == (
            "length",
            True,
            3,
        )


async def usage_that_nobody_asked_for_stays_here_natively(engine: SGLangEngine) -> None:
    own = await native(engine, "hidden")
    prompt = prompt_ids(61, 300)
    told = await ask(own, prompt, tokens=True, stream=True)
    untold = await ask(own, prompt, tokens=True, stream=True, asks_usage=False)
    assert payloads(told.body)[-1]["usage"]["prompt_tokens"] == 300
    assert b"usage" not in untold.body
    assert untold.account.reuse.by_tier == HIT


async def log_probabilities_and_stops_are_the_same_natively(engine: SGLangEngine) -> None:
    own = await native(engine, "logprobs")
    prompt = prompt_ids(62, 50)
    asked: dict[str, Any] = {"logprobs": 2, "max_tokens": 12}
    ours = json.loads((await ask(own, prompt, tokens=True, **asked)).body)["choices"][0]
    theirs = json.loads((await ask(engine, prompt, **asked)).body)["choices"][0]
    assert ours["text"] == theirs["text"]
    assert ours["logprobs"]["token_logprobs"] == pytest.approx(theirs["logprobs"]["token_logprobs"], abs=1e-3)
    assert len(ours["logprobs"]["top_logprobs"]) == 12
    stop = ours["text"][4:7]
    for stream in (False, True):
        cut = await ask(own, prompt, tokens=True, max_tokens=12, stop=[stop], stream=stream)
        text = streamed_text(cut) if stream else json.loads(cut.body)["choices"][0]["text"]
        assert text == ours["text"][: ours["text"].index(stop)]
        assert cut.account.finish == "stop"


async def what_natively_would_be_another_request_goes_to_its_own_route(engine: SGLangEngine) -> None:
    own = await native(engine, "own-route")
    known, fresh = prompt_ids(63, 300), prompt_ids(64, 300)
    await ask(own, known, tokens=True)
    several = await ask(own, [known, fresh])
    assert (several.account.reuse.prompt, several.account.reuse.reused) == (600, 299)
    tiers = await ask(own, known, tokens=True, return_cached_tokens_details=True)
    assert b'"sglext":{"cached_tokens_details":{"device":299' in tiers.body
    refused = await ask(own, prompt_ids(65, 20), tokens=True, max_tokens=-4)
    assert (refused.status, refused.account.error) == (400, "Bad Request")


async def what_it_refuses_natively_is_an_invalid_request(engine: SGLangEngine) -> None:
    own = await native(engine, "refused")
    bias = {"900000000": 1.0}  # of a token that the model has not
    for stream in (False, True):
        with pytest.raises(InvalidRequestError, match="logit_bias"):
            await ask(own, prompt_ids(65, 20), tokens=True, stream=stream, logit_bias=bias)
    with pytest.raises(ContextLengthError):
        await ask(own, prompt_ids(66, 8192), tokens=True)


async def prompts_that_are_the_same_here_go_as_ids(engine: SGLangEngine) -> None:
    prompts = its_prompts()
    own = SGLangNativeEngine("native", engine.server, prompts=prompts, new_id=named("as-ids"))
    found = await own.detect()
    assert found.as_ids[:2] == ("completions", "text")
    assert found.reports_reuse is True
    tokens = PromptTokens(prompts)
    text = "Tides follow the moon. " * 30
    for route, field in (("completions", text), ("chat", text + "Why?")):
        plain = await ask(engine, field, route=route)
        prompt = plain.account.reuse.prompt
        again = await ask(own, field, route=route, tokens=tokens)
        assert again.status == 200, again.body
        assert (again.account.reuse.prompt, again.account.reuse.reused) == (prompt, prompt - 1)
        assert again.account.reuse.by_tier == {"device": prompt - 1, "host": 0}
        source = NATIVE if route == "completions" else "usage.prompt_tokens_details.cached_tokens"
        assert again.account.reuse.source == source


NATIVE_FACTS = (
    completions_are_the_same_natively_and_tell_tiers,
    usage_that_nobody_asked_for_stays_here_natively,
    log_probabilities_and_stops_are_the_same_natively,
    what_natively_would_be_another_request_goes_to_its_own_route,
    what_it_refuses_natively_is_an_invalid_request,
    prompts_that_are_the_same_here_go_as_ids,
)


async def natively_it_reports_without_its_flag(engine: SGLangEngine) -> None:
    own = SGLangNativeEngine("native", engine.server, new_id=named("bare-native"))
    found = await own.detect()
    assert found.reports_reuse is True
    assert REPORT_FLAG in found.missing  # which its chats need
    prompt = prompt_ids(67, 300)
    for reused in (0, 299):
        reuse = (await ask(own, prompt, tokens=True)).account.reuse
        assert (reuse.prompt, reuse.reused, reuse.status) == (300, reused, "reported")


NATIVE_BARE_FACTS = (natively_it_reports_without_its_flag,)
