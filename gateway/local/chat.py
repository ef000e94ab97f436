"""POST /v1/chat/completions: a chat body becomes one engine request."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from canon.errors import PromptTooLongError, TemplateError
from engine_adapters.base import GenerateRequest
from gateway.canonical.recorder import AnswerRecorder
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
from gateway.prompts import PromptSource, RenderedChat
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord
from gateway.wire.answers import AnswerHead, StreamedAnswer, WholeAnswer
from gateway.wire.chat_answer import WholeChat
from gateway.wire.chat_body import ChatBody, check_chat, grammar, tool_options
from gateway.wire.chat_stream import ChatStream
from gateway.wire.extension import without_extension
from gateway.wire.sampling import sampling_params
from gateway.wire.usage import HEADER
from gateway.wire.validation import unknown_names, validate


async def chat_job(incoming: Incoming, context: JobContext, record: RequestRecord) -> Job:
    """Check, render and encode a chat; raises ApiError for everything that is wrong with it."""
    chat = validate(ChatBody, incoming.body)
    record.model, record.stream = chat.model[:200], bool(chat.stream)
    record.ignored = unknown_names(chat)
    backend = local_backend(context.served, chat.model, incoming.tenant)
    check_chat(chat, context.settings)
    incoming = await context.threads.parse(incoming.size, partial(without_extension, incoming))
    able = backend.capabilities()
    sharing = incoming.tenant.scope(able.model)
    record.engine, record.block_size = backend.name, able.block_size
    sent = await canonical(incoming, "chat", able.model, context, record)
    body = sent.body
    tools = tool_options(chat, body.get("tools"), can_parse=able.tool_parser is not None)
    with record.stages.stage("tokenize"):
        prompt = await context.threads.encode(
            incoming.size, partial(_render, backend.prompts, chat, body, sharing, able.context_length)
        )
    record.prompt_tokens = len(prompt.ids)
    if record.canon is not None and prompt.control_tokens:
        record.canon = record.canon.with_control_tokens(prompt.control_tokens)
    await expect(
        SentRequest(backend.name, sharing, incoming.body, body, incoming.size, able.block_size, prompt.ids),
        context,
        record,
    )
    head = new_head("chatcmpl", able.model, chat.n or 1)
    request = GenerateRequest(
        request_id=head.id,
        route="chat",
        model=able.model,
        prompt_ids=prompt.ids,
        sampling=sampling_params(
            chat,
            max_tokens=room_for(prompt.ids, able.context_length, chat.token_limit(), "messages"),
            logprobs=chat.wanted_logprobs(),
            grammar=grammar(chat),
        ),
        scope=sharing,
        tools=tools,
        starts_in_reasoning=prompt.starts_in_reasoning,
        body=body,
        raw=sent.raw,
        retention=granted_retention(chat.kvgate, incoming, len(prompt.ids), context, record),
    )
    kept = sent.recording
    recorder = None if kept is None else AnswerRecorder(kept, WholeChat(head, logprobs=False))
    facts = usage_facts(incoming, context, record)
    usage = chat.wants_usage or incoming.header(HEADER) == "full"
    answer = _answer(chat, head, include_usage=usage)
    answer.facts = facts
    return Job(backend.engine, (request,), answer, recorder)


def _render(
    prompts: PromptSource, chat: ChatBody, body: Mapping[str, Any], scope: str, context: int
) -> RenderedChat:
    try:
        return prompts.chat(
            body["messages"],
            body.get("tools") or None,
            add_generation_prompt=chat.opens_turn(),
            continue_final_message=bool(chat.continue_final_message),
            template_kwargs=chat.template_kwargs(),
            scope=scope,
            most=context,
        )
    except PromptTooLongError as error:
        raise context_too_long(error.least, context, "messages", counted=False) from None
    except TemplateError as error:
        raise invalid(error.message, error.param, "invalid_value") from None


def _answer(chat: ChatBody, head: AnswerHead, *, include_usage: bool) -> StreamedAnswer | WholeAnswer:
    logprobs = bool(chat.logprobs)
    if chat.stream:
        return ChatStream(head, logprobs=logprobs, include_usage=include_usage)
    return WholeChat(head, logprobs=logprobs)
