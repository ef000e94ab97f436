"""The main job: the default model behind the official SDK, in a process of its own."""

import asyncio

import httpx
import openai
import pytest

from tests.end_to_end.conftest import Serving

MODEL = "smollm2-135m-instruct"
BLOCK = 16
RULES = " ".join(f"Rule {number}: keep deck {number * 7 % 101} clean and dry." for number in range(490))
SHORT = " ".join(f"Rule {number}: keep deck {number * 7 % 101} clean and dry." for number in range(40))


def chat(
    client: openai.OpenAI, system: str, question: str, **options: object
) -> openai.types.chat.ChatCompletion:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    options = {"temperature": 0, "max_tokens": 8} | options
    return client.chat.completions.create(model=MODEL, messages=messages, **options)  # type: ignore[call-overload, no-any-return]


def cached(answer: object) -> int:
    usage = answer.usage  # type: ignore[attr-defined]
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens is not None
    return int(usage.prompt_tokens_details.cached_tokens)


def test_the_second_request_with_a_7000_token_system_prompt_reuses_every_whole_block(
    smollm2: Serving,
) -> None:
    client = smollm2.client()
    first = chat(client, RULES, "What is rule 3?")
    second = chat(client, RULES, "And what does rule 17 say?")
    assert first.usage is not None
    assert second.usage is not None
    assert cached(first) == 0
    assert first.usage.prompt_tokens > 7000
    question = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "And what does rule 17 say?"}], max_tokens=1
    )
    assert question.usage is not None
    recomputed = second.usage.prompt_tokens - cached(second)
    assert cached(second) % BLOCK == 0
    # What differs is the question and the few template tokens around it, and at most one broken block.
    assert recomputed < question.usage.prompt_tokens + BLOCK


def test_the_answer_is_the_same_cold_and_warm_streamed_and_not(smollm2: Serving) -> None:
    client = smollm2.client()
    question = "Which deck is named in rule 2?"
    cold = chat(client, SHORT, question, max_tokens=12)
    warm = chat(client, SHORT, question, max_tokens=12)
    stream = chat(client, SHORT, question, max_tokens=12, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)  # type: ignore[call-overload]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert cold.choices[0].message.content == warm.choices[0].message.content == text
    assert cached(warm) >= cold.usage.prompt_tokens - BLOCK  # type: ignore[union-attr]
    assert cached(chunks[-1]) == cached(warm)


def test_the_next_turn_reuses_the_answer_as_well(smollm2: Serving) -> None:
    client = smollm2.client()
    messages = [{"role": "user", "content": "Name three colours of the rainbow, one a line."}]
    options = {"model": MODEL, "temperature": 0, "max_tokens": 60}
    first = client.chat.completions.create(messages=messages, **options)  # type: ignore[call-overload]
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And one more?"},
    ]
    second = client.chat.completions.create(messages=messages, **options)  # type: ignore[call-overload]
    spoken = first.usage.prompt_tokens + first.usage.completion_tokens
    assert cached(second) >= (spoken - 1) // BLOCK * BLOCK - BLOCK
    assert cached(second) > first.usage.prompt_tokens


async def test_async_requests_that_arrive_together_share_their_prefix(smollm2: Serving) -> None:
    client = smollm2.async_client()
    system = "Shared by all that come at once. " + SHORT

    async def ask(number: int) -> int:
        answer = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": f"Say {number}"}],
            max_tokens=4,
        )
        return cached(answer)

    counts = sorted(await asyncio.gather(*(ask(number) for number in range(6))))
    assert counts[0] == 0
    assert all(count > 300 for count in counts[1:])


def test_completions_models_health_and_ready(smollm2: Serving) -> None:
    client = smollm2.client()
    assert [model.id for model in client.models.list()] == [MODEL]
    answer = client.completions.create(
        model=MODEL,
        prompt="The capital of France is",
        max_tokens=6,
        temperature=0,
        n=2,
        echo=True,
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert "Paris" in answer.choices[0].text
    assert answer.choices[0].text == answer.choices[1].text
    root = smollm2.url.removesuffix("/v1")
    assert httpx.get(f"{root}/health", timeout=60).status_code == 200
    assert httpx.get(f"{root}/ready", timeout=60).status_code == 200


def test_a_schema_is_kept_and_its_property_order_too(smollm2: Serving) -> None:
    import json

    properties = {"town": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}}
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["town", "age"],
        "additionalProperties": False,
    }
    answer = chat(
        smollm2.client(),
        "You answer in JSON.",
        "Where does Ann live, and how old is she?",
        max_tokens=80,
        response_format={"type": "json_schema", "json_schema": {"name": "ann", "schema": schema}},
    )
    assert list(json.loads(answer.choices[0].message.content or "")) == ["town", "age"]


def test_control_tokens_typed_by_a_user_stay_text(smollm2: Serving) -> None:
    client = smollm2.client()
    harmless = chat(client, "Be brief.", "Hello", max_tokens=1)
    typed = chat(client, "Be brief.", "Hello<|im_end|>", max_tokens=1)
    assert harmless.usage is not None
    assert typed.usage is not None
    assert typed.usage.prompt_tokens > harmless.usage.prompt_tokens + 1


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model": "other", "messages": [{"role": "user", "content": "x"}]}, 404, "model_not_found", "model"),
        ({"model": MODEL, "messages": [{"role": "user", "content": RULES + RULES}]}, 400,
         "context_length_exceeded", "messages"),
        ({"model": MODEL, "prompt": [1, 2, 10**6]}, 400, None, "prompt"),
        ({"model": MODEL, "prompt": "x", "logit_bias": {"9999999": 1}}, 400, None, "logit_bias"),
        ({"model": MODEL, "messages": [{"role": "user", "content": "x"}], "chat_template": "{{ 1 }}"}, 400,
         None, "chat_template"),
        ({"model": MODEL, "messages": [{"role": "user", "content": "x"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, 400, None, "tools"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_in_the_error_shape(
    smollm2: Serving, body: dict[str, object], status: int, code: str | None, param: str
) -> None:
    route = "completions" if "prompt" in body else "chat/completions"
    answer = httpx.post(f"{smollm2.url}/{route}", json=body, timeout=60)
    error = answer.json()["error"]
    assert answer.status_code == status, error
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    if code is not None:
        assert error["code"] == code
    if code == "context_length_exceeded":
        assert "8192" in error["message"].replace(",", "")


def test_prompts_are_never_logged(smollm2: Serving) -> None:
    secret = "the-parrot-sleeps-at-noon"
    chat(smollm2.client(), "Be brief.", secret, max_tokens=1)
    assert smollm2.lines
    assert not any(secret in line for line in smollm2.lines)
