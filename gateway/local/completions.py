"""POST /v1/completions: every prompt of the body becomes one engine request."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from canon.errors import PromptTooLongError, TemplateError
from engine_adapters.base import GenerateRequest
from gateway.errors import context_too_long, invalid
from gateway.jobs import (
    Job,
    JobContext,
    canonical,
    expect,
    granted_retention,
    local_backend,
    new_head,
    room_for,
    usage_facts,
)
from gateway.ledger.expectation import SentRequest
from gateway.limits.several_prompts import check_prompts
from gateway.prompts import PromptSource
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord
from gateway.wire.answers import AnswerHead, StreamedAnswer, WholeAnswer
from gateway.wire.completions_answer import WholeCompletion
from gateway.wire.completions_body import DEFAULT_MAX_TOKENS, CompletionsBody, check_completions
from gateway.wire.completions_stream import CompletionStream
from gateway.wire.extension import without_extension
from gateway.wire.sampling import sampling_params
from gateway.wire.usage import HEADER
from gateway.wire.validation import unknown_names, validate


async def completions_job(incoming: Incoming, context: JobContext, record: RequestRecord) -> Job:
    """Check and encode the prompts; raises ApiError for everything that is wrong with them."""
    wanted = validate(CompletionsBody, incoming.body)
    record.model, record.stream = wanted.model[:200], bool(wanted.stream)
    record.ignored = unknown_names(wanted)
    backend = local_backend(context.served, wanted.model, incoming.tenant)
    check_completions(wanted, context.settings)
    check_prompts("completions", incoming.body, context.limits_of(incoming.tenant), record)
    incoming = await context.threads.parse(incoming.size, partial(without_extension, incoming))
    able = backend.capabilities()
    sharing = incoming.tenant.scope(able.model)
    record.engine, record.block_size = backend.name, able.block_size
    # Prompts are taken from `wanted`: no rule edits a raw prompt.
    sent = await canonical(incoming, "completions", able.model, context, record)
    prompts = wanted.prompts()
    with record.stages.stage("tokenize"):
        encoded = await context.threads.encode(
            incoming.size, partial(_encode_all, backend.prompts, wanted, sharing, able.context_length)
        )
    record.prompt_tokens = sum(map(len, encoded))
    head = new_head("cmpl", able.model, wanted.n or 1)
    limit = wanted.max_tokens or DEFAULT_MAX_TOKENS
    kept = granted_retention(wanted.kvgate, incoming, record.prompt_tokens, context, record)
    requests = [
        GenerateRequest(
            request_id=f"{head.id}-{index}",
            route="completions",
            model=able.model,
            prompt_ids=ids,
            sampling=sampling_params(
                wanted,
                max_tokens=room_for(ids, able.context_length, limit, wanted.param_of(index)),
                logprobs=wanted.logprobs,
            ),
            scope=sharing,
            reasoning=False,
            body=sent.body,
            raw=sent.raw,
            retention=kept,
        )
        for index, ids in enumerate(encoded)
    ]
    echoes = [_text(backend.prompts, prompt) if wanted.echo else "" for prompt in prompts]
    tokens = encoded[0] if len(encoded) == 1 else None  # several prompts are no one prefix
    request = SentRequest(
        backend.name, sharing, incoming.body, sent.body, incoming.size, able.block_size, tokens
    )
    await expect(request, context, record)
    usage = wanted.wants_usage or incoming.header(HEADER) == "full"
    answer = _answer(wanted, head, echoes, include_usage=usage)
    answer.facts = usage_facts(incoming, context, record)
    return Job(backend.engine, requests, answer)


def _encode_all(
    source: PromptSource, wanted: CompletionsBody, scope: str, context: int
) -> list[NDArray[np.int32]]:
    prompts = enumerate(wanted.prompts())
    return [_encode(source, prompt, wanted.param_of(i), scope, context) for i, prompt in prompts]


def _encode(
    source: PromptSource, prompt: str | list[int], param: str, scope: str, context: int
) -> NDArray[np.int32]:
    if not isinstance(prompt, str):
        return np.asarray(prompt, dtype=np.int32)
    try:
        return source.encode(prompt, scope=scope, most=context)
    except PromptTooLongError as error:
        raise context_too_long(error.least, context, param, counted=False) from None
    except TemplateError as error:
        raise invalid(error.message, param, "invalid_value") from None


def _text(source: PromptSource, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else source.decode(prompt)


def _answer(
    wanted: CompletionsBody, head: AnswerHead, echoes: list[str], *, include_usage: bool
) -> StreamedAnswer | WholeAnswer:
    logprobs = wanted.logprobs is not None
    if wanted.stream:
        return CompletionStream(head, echoes=echoes, logprobs=logprobs, include_usage=include_usage)
    return WholeCompletion(head, echoes=echoes, logprobs=logprobs)
