"""What holds of vLLM, as the adapter sees it. Run against the real server, and against recordings of it."""

import pytest

from engine_adapters.errors import UnsupportedByEngineError
from engine_adapters.remote.vllm import CACHING_FLAG, DETAILS_FLAG, VllmEngine
from tests.engines.asking import ask, prompt_ids

BLOCK = 128  # tokens, on a CPU


async def detection_finds_what_the_engine_is_and_can(engine: VllmEngine) -> None:
    found = await engine.detect()
    assert found.models == ("smollm2",)
    assert found.reports_reuse is True
    assert found.missing == ()
    assert (found.block_size, found.context_length) == (BLOCK, 4096)
    assert found.takes_salt is True
    assert found.takes_token_ids is True
    assert found.kv_events is True
    assert set(found.tiers) == {"device", "host", "disk", "store"}
    assert found.version == "0.32.0"
    assert (await engine.health()).ready


async def a_repeated_prompt_hits_in_whole_blocks(engine: VllmEngine) -> None:
    prompt = prompt_ids(1, 300)
    first, again = await ask(engine, prompt), await ask(engine, prompt)
    assert (first.account.reuse.prompt, first.account.reuse.reused) == (300, 0)
    assert (again.account.reuse.prompt, again.account.reuse.reused) == (300, 2 * BLOCK)
    assert again.account.reuse.status == "reported"
    assert again.account.reuse.source == "usage.prompt_tokens_details.cached_tokens"


async def of_a_prompt_of_whole_blocks_the_last_is_computed_again(engine: VllmEngine) -> None:
    prompt = prompt_ids(2, 2 * BLOCK)
    await ask(engine, prompt)
    assert (await ask(engine, prompt)).account.reuse.reused == BLOCK


async def streamed_or_not_the_same_is_reported(engine: VllmEngine) -> None:
    prompt = prompt_ids(3, 300)
    await ask(engine, prompt)
    whole, streamed = await ask(engine, prompt), await ask(engine, prompt, stream=True)
    assert streamed.account.reuse == whole.account.reuse
    assert streamed.account.completion_tokens == whole.account.completion_tokens == 3
    assert (streamed.account.finish, streamed.account.ended) == ("length", True)


async def usage_that_nobody_asked_for_stays_upstream(engine: VllmEngine) -> None:
    prompt = prompt_ids(4, 300)
    await ask(engine, prompt)
    answer = await ask(engine, prompt, stream=True, asks_usage=False)
    assert answer.account.reuse.reused == 2 * BLOCK
    assert b'"usage":{' not in answer.body
    assert b'"choices":[]' not in answer.body
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def a_salt_isolates(engine: VllmEngine) -> None:
    prompt = prompt_ids(5, 300)
    for salt in ("tenant a", "tenant b", None):
        assert (await ask(engine, prompt, salt=salt)).account.reuse.reused == 0
    for salt in ("tenant a", "tenant b", None):
        assert (await ask(engine, prompt, salt=salt)).account.reuse.reused == 2 * BLOCK


async def a_client_s_own_salt_stays_within_its_tenant(engine: VllmEngine) -> None:
    prompt = prompt_ids(6, 300)
    await ask(engine, prompt, salt="tenant a")
    stolen = await ask(engine, prompt, salt="tenant b", cache_salt="tenant a")
    assert stolen.account.reuse.reused == 0


async def of_several_prompts_it_reports_one_s_hits_so_nothing_is_taken_from_it(engine: VllmEngine) -> None:
    known, fresh = prompt_ids(7, 300), prompt_ids(8, 300)
    await ask(engine, known)
    before = await engine.reuse_counters()
    answer = await ask(engine, [known, fresh])
    after = await engine.reuse_counters()
    assert b'"cached_tokens":0' in answer.body
    assert answer.account.reuse.prompt == 600
    assert (answer.account.reuse.reused, answer.account.reuse.status) == (None, "not_reported")
    assert (before.reused, after.reused) != (None, None)
    assert after.reused - before.reused == 2 * BLOCK


async def its_counters_agree_with_what_requests_report(engine: VllmEngine) -> None:
    prompt = prompt_ids(9, 300)
    before = await engine.reuse_counters()
    reports = [(await ask(engine, prompt)).account.reuse for _ in range(3)]
    after = await engine.reuse_counters()
    assert after.prompt - before.prompt == sum(report.prompt for report in reports) == 900
    assert after.reused - before.reused == sum(report.reused for report in reports) == 4 * BLOCK
    assert after.by_tier["device"] - before.by_tier["device"] == 4 * BLOCK
    assert after.by_tier["store"] == before.by_tier["store"]


async def chat_goes_through_as_it_is(engine: VllmEngine) -> None:
    text = "Count from one to ten. " * 40
    first = await ask(engine, text, route="chat")
    again = await ask(engine, text, route="chat", stream=True, asks_usage=False)
    assert first.account.reuse.reused == 0
    assert again.account.reuse.prompt == first.account.reuse.prompt
    assert again.account.reuse.reused == first.account.reuse.prompt // BLOCK * BLOCK > 0
    assert b'"content":"' in again.body


async def a_zero_in_a_responses_answer_is_not_taken_for_one(engine: VllmEngine) -> None:
    answer = await ask(engine, "Say hello to the people of block eleven.", route="responses")
    assert b'"cached_tokens":0' in answer.body
    assert (answer.account.reuse.reused, answer.account.reuse.status) == (None, "not_reported")
    assert answer.account.reuse.prompt is not None


async def its_errors_come_back_with_their_status(engine: VllmEngine) -> None:
    answer = await ask(engine, prompt_ids(10, 20), max_tokens=-4)
    assert answer.status == 400
    assert answer.account.error == "BadRequestError"
    assert answer.account.reuse.status == "not_reported"


async def a_flush_makes_everything_new(engine: VllmEngine) -> None:
    prompt = prompt_ids(11, 300)
    await ask(engine, prompt)
    await engine.flush()
    assert (await ask(engine, prompt)).account.reuse.reused == 0


FACTS = (
    detection_finds_what_the_engine_is_and_can,
    a_repeated_prompt_hits_in_whole_blocks,
    of_a_prompt_of_whole_blocks_the_last_is_computed_again,
    streamed_or_not_the_same_is_reported,
    usage_that_nobody_asked_for_stays_upstream,
    a_salt_isolates,
    a_client_s_own_salt_stays_within_its_tenant,
    of_several_prompts_it_reports_one_s_hits_so_nothing_is_taken_from_it,
    its_counters_agree_with_what_requests_report,
    chat_goes_through_as_it_is,
    a_zero_in_a_responses_answer_is_not_taken_for_one,
    its_errors_come_back_with_their_status,
    a_flush_makes_everything_new,
)


async def without_its_flags_they_are_named(engine: VllmEngine) -> None:
    found = await engine.detect()
    assert found.reports_reuse is False
    assert found.missing == (CACHING_FLAG, DETAILS_FLAG)
    assert found.kv_events is False


async def without_the_flag_details_are_null_and_not_zero(engine: VllmEngine) -> None:
    prompt = prompt_ids(20, 300)
    for stream in (False, False, True):
        answer = await ask(engine, prompt, stream=stream)
        assert b'"prompt_tokens_details":{' not in answer.body
        assert (answer.account.reuse.reused, answer.account.reuse.status) == (None, "not_reported")
        assert answer.account.reuse.prompt == 300


async def outside_dev_mode_it_cannot_be_flushed(engine: VllmEngine) -> None:
    with pytest.raises(UnsupportedByEngineError, match="VLLM_SERVER_DEV_MODE"):
        await engine.flush()


BARE_FACTS = (
    without_its_flags_they_are_named,
    without_the_flag_details_are_null_and_not_zero,
    outside_dev_mode_it_cannot_be_flushed,
)


KEPT = prompt_ids(60, 1022)  # asked of an engine that has ended since, with a store behind it


async def what_a_store_kept_is_a_tier_of_its_own(engine: VllmEngine) -> None:
    before = await engine.reuse_counters()
    report = (await ask(engine, KEPT)).account.reuse
    after = await engine.reuse_counters()
    assert (report.prompt, report.reused) == (1022, 768)  # in chunks of 256 tokens
    assert after.prompt - before.prompt == 1022
    assert after.reused - before.reused == 768
    assert after.by_tier["store"] - before.by_tier["store"] == 768
    assert after.by_tier["device"] == before.by_tier["device"]


STORE_FACTS = (what_a_store_kept_is_a_tier_of_its_own,)
