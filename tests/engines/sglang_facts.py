"""What holds of SGLang, as the adapter sees it. Run against the real server, and against recordings of it."""

import numpy as np
import pytest

from engine_adapters.base import Event, Finished, GenerateRequest, SamplingParams, TextDelta, Usage
from engine_adapters.errors import ContextLengthError, InvalidRequestError
from engine_adapters.remote.sglang import METRICS_FLAG, REPORT_FLAG, SGLangEngine
from engine_adapters.remote.sglang_generate import SGLangGenerate
from tests.engines.asking import ask, prompt_ids
from tests.engines.running import MODEL_NAME


async def detection_finds_what_the_engine_is_and_can(engine: SGLangEngine) -> None:
    found = await engine.detect()
    assert found.models == ("smollm2",)
    assert found.reports_reuse is True
    assert found.missing == ()
    assert (found.block_size, found.context_length) == (1, 8192)
    assert found.takes_salt is True
    assert found.takes_token_ids is True
    assert found.kv_events is True
    assert found.tiers == ("device",)
    assert found.version == "0.5.23"
    assert (await engine.health()).ready


async def a_full_hit_is_all_but_the_last_token(engine: SGLangEngine) -> None:
    prompt = prompt_ids(1, 300)
    first, again = await ask(engine, prompt), await ask(engine, prompt)
    assert (first.account.reuse.prompt, first.account.reuse.reused) == (300, 0)
    assert first.account.reuse.status == "reported"
    assert (again.account.reuse.prompt, again.account.reuse.reused) == (300, 299)


async def tiers_are_asked_for_and_stay_upstream(engine: SGLangEngine) -> None:
    prompt = prompt_ids(2, 300)
    await ask(engine, prompt)
    for stream in (False, True):
        answer = await ask(engine, prompt, stream=stream)
        assert answer.account.reuse.by_tier == {"device": 299, "host": 0}
        assert b"sglext" not in answer.body
        assert b'"cached_tokens":299' in answer.body


async def a_client_that_asks_for_tiers_gets_them(engine: SGLangEngine) -> None:
    prompt = prompt_ids(3, 300)
    await ask(engine, prompt)
    for stream in (False, True):
        answer = await ask(engine, prompt, stream=stream, return_cached_tokens_details=True)
        assert b'"sglext":{"cached_tokens_details":{"device":299' in answer.body
        assert answer.account.reuse.by_tier == {"device": 299, "host": 0}


async def streamed_or_not_the_same_is_reported(engine: SGLangEngine) -> None:
    prompt = prompt_ids(4, 300)
    await ask(engine, prompt)
    whole, streamed = await ask(engine, prompt), await ask(engine, prompt, stream=True)
    assert streamed.account.reuse == whole.account.reuse
    assert streamed.account.completion_tokens == whole.account.completion_tokens == 3
    assert (streamed.account.finish, streamed.account.ended) == ("length", True)


async def usage_that_nobody_asked_for_stays_upstream(engine: SGLangEngine) -> None:
    prompt = prompt_ids(5, 300)
    await ask(engine, prompt)
    answer = await ask(engine, prompt, stream=True, asks_usage=False)
    assert answer.account.reuse.reused == 299
    assert answer.account.reuse.by_tier == {"device": 299, "host": 0}
    assert b'"usage":{' not in answer.body
    assert b'"choices":[]' not in answer.body
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def a_salt_isolates(engine: SGLangEngine) -> None:
    prompt = prompt_ids(6, 300)
    for salt in ("tenant a", "tenant b", None):
        assert (await ask(engine, prompt, salt=salt)).account.reuse.reused == 0
    for salt in ("tenant a", "tenant b", None):
        assert (await ask(engine, prompt, salt=salt)).account.reuse.reused == 299


async def a_client_s_own_salt_stays_within_its_tenant(engine: SGLangEngine) -> None:
    prompt = prompt_ids(7, 300)
    await ask(engine, prompt, salt="tenant a")
    stolen = await ask(engine, prompt, salt="tenant b", cache_salt="tenant a")
    assert stolen.account.reuse.reused == 0


async def of_several_prompts_all_hits_are_reported(engine: SGLangEngine) -> None:
    known, fresh = prompt_ids(8, 300), prompt_ids(9, 300)
    await ask(engine, known)
    answer = await ask(engine, [known, fresh])
    assert (answer.account.reuse.prompt, answer.account.reuse.reused) == (600, 299)


async def its_counters_agree_with_what_requests_report(engine: SGLangEngine) -> None:
    prompt = prompt_ids(10, 300)
    before = await engine.reuse_counters()
    reports = [(await ask(engine, prompt)).account.reuse for _ in range(3)]
    after = await engine.reuse_counters()
    assert after.prompt - before.prompt == sum(report.prompt for report in reports) == 900
    assert after.reused - before.reused == sum(report.reused for report in reports) == 598
    assert after.by_tier["device"] - before.by_tier["device"] == 598


async def chat_goes_through_as_it_is(engine: SGLangEngine) -> None:
    text = "Count from one to ten. " * 40
    first = await ask(engine, text, route="chat")
    again = await ask(engine, text, route="chat", stream=True, asks_usage=False)
    prompt = first.account.reuse.prompt
    assert (again.account.reuse.prompt, again.account.reuse.reused) == (prompt, prompt - 1)
    assert again.account.reuse.by_tier == {"device": prompt - 1, "host": 0}
    assert b'"content":"' in again.body
    assert b"sglext" not in again.body


async def its_errors_are_flat_and_come_back_with_their_status(engine: SGLangEngine) -> None:
    answer = await ask(engine, prompt_ids(11, 20), max_tokens=-4)
    assert answer.status == 400
    assert answer.body.startswith(b'{"object":"error"')
    assert answer.account.error == "Bad Request"


async def a_flush_makes_everything_new(engine: SGLangEngine) -> None:
    prompt = prompt_ids(12, 300)
    await ask(engine, prompt)
    await engine.flush()
    assert (await ask(engine, prompt)).account.reuse.reused == 0


async def natively(
    engine: SGLangGenerate, prompt: list[int], rid: str, scope: str = "a", **sampling: object
) -> list[Event]:
    """The events of one native request of a few tokens.

    `rid` is recorded, and no other request has it: two seconds after a stream the server aborts what has its id.
    """
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 3, **sampling})
    ids = np.array(prompt, dtype=np.int32)
    request = GenerateRequest(rid, "completions", MODEL_NAME, ids, params, scope=scope)
    return [event async for event in engine.generate(request)]


async def natively_scopes_share_nothing_and_tiers_are_told(engine: SGLangEngine) -> None:
    native = await SGLangGenerate.open(engine)
    prompt = prompt_ids(13, 300)
    hit = {"device": 299, "host": 0}
    for rid, scope, tiers in (("scope-1", "a", None), ("scope-2", "b", None), ("scope-3", "b", hit)):
        usage = (await natively(native, prompt, rid, scope))[-1]
        assert isinstance(usage, Usage)
        assert usage.reuse.by_tier == tiers
        assert usage.reuse.source == "meta_info.cached_tokens"
        assert (usage.prompt_tokens, usage.completion_tokens) == (300, 3)


async def natively_no_part_of_a_stop_string_comes_out(engine: SGLangEngine) -> None:
    native = await SGLangGenerate.open(engine)
    prompt = prompt_ids(14, 50)
    whole = text_of(await natively(native, prompt, "stop-1", max_tokens=12))
    stop = whole[4:7]
    events = await natively(native, prompt, "stop-2", max_tokens=12, stop=(stop,))
    assert text_of(events) == whole[: whole.index(stop)]
    assert Finished(0, "stop", stop) in events


async def natively_several_answers_have_their_own_log_probabilities(engine: SGLangEngine) -> None:
    native = await SGLangGenerate.open(engine)
    events = await natively(native, prompt_ids(15, 50), "several", n=2, logprobs=2)
    for index in (0, 1):
        deltas = [event for event in events if isinstance(event, TextDelta) and event.index == index]
        assert len([one for delta in deltas for one in delta.logprobs]) == 3
        assert all(len(one.top) == 2 for delta in deltas for one in delta.logprobs)
    assert events[-1].completion_tokens == 6


async def natively_what_it_refuses_is_an_invalid_request(engine: SGLangEngine) -> None:
    native = await SGLangGenerate.open(engine)
    with pytest.raises(InvalidRequestError, match="top_p"):
        await natively(native, prompt_ids(16, 20), "refused", top_p=-1.0)
    with pytest.raises(ContextLengthError):
        await natively(native, prompt_ids(17, 8192), "long")


async def it_tokenizes_without_special_tokens(engine: SGLangEngine) -> None:
    native = await SGLangGenerate.open(engine)
    ids = (await native.tokenize("Hello, world")).tolist()
    assert ids == [19556, 28, 905]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


FACTS = (
    detection_finds_what_the_engine_is_and_can,
    a_full_hit_is_all_but_the_last_token,
    tiers_are_asked_for_and_stay_upstream,
    a_client_that_asks_for_tiers_gets_them,
    streamed_or_not_the_same_is_reported,
    usage_that_nobody_asked_for_stays_upstream,
    a_salt_isolates,
    a_client_s_own_salt_stays_within_its_tenant,
    of_several_prompts_all_hits_are_reported,
    its_counters_agree_with_what_requests_report,
    chat_goes_through_as_it_is,
    its_errors_are_flat_and_come_back_with_their_status,
    a_flush_makes_everything_new,
    natively_scopes_share_nothing_and_tiers_are_told,
    natively_no_part_of_a_stop_string_comes_out,
    natively_several_answers_have_their_own_log_probabilities,
    natively_what_it_refuses_is_an_invalid_request,
    it_tokenizes_without_special_tokens,
)


async def without_its_flags_they_are_named(engine: SGLangEngine) -> None:
    found = await engine.detect()
    assert found.reports_reuse is False
    assert found.missing == (REPORT_FLAG, METRICS_FLAG)
    assert found.kv_events is False


async def without_the_flag_a_miss_is_not_reported_and_a_hit_only_by_its_tiers(engine: SGLangEngine) -> None:
    prompt = prompt_ids(20, 300)
    first = (await ask(engine, prompt)).account.reuse
    assert (first.prompt, first.reused, first.status) == (300, None, "not_reported")
    for stream in (False, True):
        answer = await ask(engine, prompt, stream=stream)
        assert b"cached_tokens" not in answer.body
        assert (answer.account.reuse.prompt, answer.account.reuse.reused) == (300, 299)
        assert answer.account.reuse.by_tier == {"device": 299, "host": 0}
        assert answer.account.reuse.source == "sglext.cached_tokens_details"


async def natively_it_reports_whatever_its_flags(engine: SGLangEngine) -> None:
    native = await SGLangGenerate.open(engine)
    assert native.capabilities().reports_reuse is True
    prompt = prompt_ids(21, 300)
    for rid, reused in (("bare-1", 0), ("bare-2", 299)):
        usage = (await natively(native, prompt, rid))[-1]
        assert isinstance(usage, Usage)
        assert (usage.reuse.prompt, usage.reuse.reused, usage.reuse.status) == (300, reused, "reported")


BARE_FACTS = (
    without_its_flags_they_are_named,
    without_the_flag_a_miss_is_not_reported_and_a_hit_only_by_its_tiers,
    natively_it_reports_whatever_its_flags,
)
