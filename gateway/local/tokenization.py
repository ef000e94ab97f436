"""`/tokenize` and `/detokenize` for engines in this process, answered by the model's own tokenizer.

Bodies may be in vLLM's form or in SGLang's, and answers hold what clients of either look for.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag
from starlette.types import Send

from canon.errors import TemplateError
from gateway.errors import invalid
from gateway.jobs import JobContext, local_backend
from gateway.served import Backend
from gateway.surface.endpoint import Finish
from gateway.transport.answer import send_json
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord
from gateway.transport.sse import EventStream
from gateway.wire.messages import Message, Tool
from gateway.wire.sampling import TokenId
from gateway.wire.template_fields import TemplateFields, check_template
from gateway.wire.validation import WireModel, validate

Ids = Annotated[list[TokenId], Field(fail_fast=True)]
Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]


class TokenizeBody(TemplateFields):
    """A text, several (SGLang), or a chat, which is rendered first."""

    model: str | None = None
    prompt: str | Texts | None = None
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)] | None = None
    tools: Annotated[list[Tool], Field(fail_fast=True)] | None = None
    add_special_tokens: bool = True  # to texts; a chat has those of its template
    add_generation_prompt: bool | None = None  # None: unless the last message is continued
    continue_final_message: bool = False
    return_token_strs: bool | None = None


def _kind_of_tokens(tokens: object) -> str | None:
    if not isinstance(tokens, list):
        return None
    return "<batches>" if tokens and isinstance(tokens[0], list) else "<ids>"


Tokens = Annotated[
    Annotated[Ids, Tag("<ids>")] | Annotated[list[Ids], Field(fail_fast=True), Tag("<batches>")],
    Discriminator(
        _kind_of_tokens,
        custom_error_type="tokens_type",
        custom_error_message="tokens are a list of token ids, or a list of such lists",
    ),
]


class DetokenizeBody(WireModel):
    """Token ids, or several lists of them (SGLang)."""

    model: str | None = None
    tokens: Tokens
    skip_special_tokens: bool = False


class TokenizeRoute:
    """Texts and chats to token ids."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    async def __call__(
        self, incoming: Incoming, send: Send, stream: EventStream, record: RequestRecord
    ) -> Finish:
        wanted = validate(TokenizeBody, incoming.body)
        check_template(wanted)
        if (wanted.prompt is None) == (wanted.messages is None):
            raise invalid("Write either 'prompt' or 'messages'.", "prompt", "missing_required_parameter")
        backend = _backend(wanted.model, self._context, record)
        work = partial(_tokenized, wanted, backend, incoming)
        answer = await self._context.threads.encode(incoming.size, work)
        return partial(send_json, send, answer)


class DetokenizeRoute:
    """Token ids to text."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    async def __call__(
        self, incoming: Incoming, send: Send, stream: EventStream, record: RequestRecord
    ) -> Finish:
        wanted = validate(DetokenizeBody, incoming.body)
        backend = _backend(wanted.model, self._context, record)
        text = await self._context.threads.encode(incoming.size, partial(_text, wanted, backend))
        return partial(send_json, send, {"prompt": text, "text": text})


def _backend(model: str | None, context: JobContext, record: RequestRecord) -> Backend:
    served, tenant = context.served, record.tenant
    found = served.only(tenant).target if model is None else local_backend(served, model, tenant)
    assert isinstance(found, Backend)  # what others have was sent on before
    record.engine, record.model = found.name, found.capabilities().model[:200]
    return found


def _tokenized(wanted: TokenizeBody, backend: Backend, incoming: Incoming) -> dict[str, Any]:
    able, prompt = backend.capabilities(), wanted.prompt
    scope = incoming.tenant.scope(able.model)
    try:
        if prompt is None:
            found = _chat(wanted, backend, incoming.body, scope)
        else:
            texts = [prompt] if isinstance(prompt, str) else prompt
            special = wanted.add_special_tokens
            found = [
                backend.prompts.encode(text, add_special_tokens=special, scope=scope).tolist()
                for text in texts
            ]
    except TemplateError as error:
        raise invalid(error.message, error.param, "invalid_value") from None
    several = isinstance(prompt, list)
    answer: dict[str, Any] = {
        "tokens": found if several else found[0],
        "count": [len(ids) for ids in found] if several else len(found[0]),
        "max_model_len": able.context_length,
    }
    if wanted.return_token_strs:
        pieces = [[backend.prompts.decode([one]) for one in ids] for ids in found]
        answer["token_strs"] = pieces if several else pieces[0]
    return answer


def _chat(wanted: TokenizeBody, backend: Backend, body: dict[str, Any], scope: str) -> list[list[int]]:
    opens = wanted.add_generation_prompt
    kwargs = wanted.chat_template_kwargs
    chat = backend.prompts.chat(
        body["messages"],
        body.get("tools") or None,
        add_generation_prompt=not wanted.continue_final_message if opens is None else opens,
        continue_final_message=wanted.continue_final_message,
        template_kwargs=kwargs if isinstance(kwargs, dict) else {},
        scope=scope,
    )
    return [chat.ids.tolist()]


def _text(wanted: DetokenizeBody, backend: Backend) -> str | list[str]:
    tokens = wanted.tokens
    if tokens and isinstance(tokens[0], list):
        return [_decoded(ids, wanted, backend) for ids in tokens if isinstance(ids, list)]
    return _decoded([one for one in tokens if isinstance(one, int)], wanted, backend)


def _decoded(ids: Sequence[int], wanted: DetokenizeBody, backend: Backend) -> str:
    return backend.prompts.decode(ids, skip_special_tokens=wanted.skip_special_tokens)
