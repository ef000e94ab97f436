"""Text completions: every prompt form, echo, old-style log probabilities, several choices."""

import asyncio

import pytest

from engine_adapters.base import Finished, TextDelta, TokenLogprob
from tests.gateway.running_server import Running
from tests.gateway.scripted_engine import MODEL, events, usage_of


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [[97, 98]]),
        (["ab", "c"], [[97, 98], [99]]),
        ([97, 98], [[97, 98]]),
        ([[97], [98, 99]], [[97], [98, 99]]),
    ],
)
def test_every_prompt_form_reaches_the_engine(server: Running, prompt, ids, stream: bool) -> None:
    answer = server.sdk.completions.create(model=MODEL, prompt=prompt, n=2, stream=stream)
    texts = dict.fromkeys(range(2 * len(ids)), "")
    for piece in answer if stream else [answer]:
        for choice in piece.choices:
            texts[choice.index] += choice.text
    assert set(texts.values()) == {"Hello world"}
    by_id = sorted(server.engine.requests, key=lambda r: int(r.request_id.rsplit("-", 1)[1]))
    assert [request.prompt_ids.tolist() for request in by_id] == ids
    assert all(request.sampling.max_tokens == 16 and request.sampling.n == 2 for request in by_id)


def test_usage_sums_over_prompts(server: Running) -> None:
    usage = server.sdk.completions.create(model=MODEL, prompt=["abc", "d"]).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (4, 4, 8)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["Say ", list(b"Say ")])
def test_echo_puts_the_prompt_before_each_choice(server: Running, prompt, stream: bool) -> None:
    answer = server.sdk.completions.create(model=MODEL, prompt=prompt, n=2, echo=True, stream=stream)
    texts = {0: "", 1: ""}
    for piece in answer if stream else [answer]:
        for choice in piece.choices:
            texts[choice.index] += choice.text
    assert set(texts.values()) == {"Say Hello world"}


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_parallel_lists_with_offsets(server: Running, stream: bool) -> None:
    def script(request):
        halves = "é".encode()
        return events(
            TextDelta(0, "ab", (TokenLogprob(1, "ab", b"ab", -0.25, (TokenLogprob(2, "x", b"x", -1.0),)),)),
            TextDelta(0, "", (TokenLogprob(3, "\ufffd", halves[:1], float("-inf")),)),
            TextDelta(0, "é", (TokenLogprob(4, "\ufffd", halves[1:], -0.5),)),
            TextDelta(0, "c", (TokenLogprob(5, "c", b"c", -0.125),)),
            Finished(0, "stop"),
            usage_of(request),
        )(request)

    server.engine.script = script
    answer = server.sdk.completions.create(model=MODEL, prompt="p", logprobs=1, stream=stream)
    parts = [p.choices[0].logprobs for p in (answer if stream else [answer]) if p.choices[0].logprobs]
    assert [t for p in parts for t in p.tokens] == ["ab", "bytes:\\xc3", "bytes:\\xa9", "c"]
    assert [value for p in parts for value in p.token_logprobs] == [-0.25, -9999.0, -0.5, -0.125]
    assert [offset for p in parts for offset in p.text_offset] == [0, 2, 2, 3]
    # The chosen token is always among them, as OpenAI says: up to `logprobs` + 1 of them.
    assert parts[0].top_logprobs[0] == {"x": -1.0, "ab": -0.25}


def test_many_prompts_run_a_few_at_a_time(serve_with) -> None:
    server = serve_with(prompts_at_once=2)
    most = 0

    async def script(request):
        nonlocal most
        most = max(most, len(server.engine.running))
        await asyncio.sleep(0.01)
        for event in (TextDelta(0, "x"), Finished(0, "stop"), usage_of(request, 1)):
            yield event

    server.engine.script = script
    answer = server.sdk.completions.create(model=MODEL, prompt=[f"p{i}" for i in range(20)])
    assert [choice.index for choice in answer.choices] == list(range(20))
    assert len(server.engine.completed) == 20
    assert most == 2


def test_stop_and_echo_and_usage_in_a_stream(server: Running) -> None:
    chunks = list(
        server.sdk.completions.create(
            model=MODEL, prompt="p", stop="END", stream=True, stream_options={"include_usage": True}
        )
    )
    assert server.engine.requests[0].sampling.stop == ("END",)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens == 1
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "stop"
