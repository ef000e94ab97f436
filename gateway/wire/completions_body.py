"""The body of POST /v1/completions."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from gateway.errors import invalid, unsupported
from gateway.settings import GatewaySettings
from gateway.wire.sampling import SamplingFields, TokenId, check_common

DEFAULT_MAX_TOKENS = 16  # OpenAI's

Ids = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]


def _kind_of_prompt(prompt: object) -> str | None:
    if isinstance(prompt, str):
        return "<string>"
    if not isinstance(prompt, list):
        return None
    first = prompt[0] if prompt else ""
    return "<strings>" if isinstance(first, str) else "<batches>" if isinstance(first, list) else "<ids>"


Prompt = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[list[str], Field(min_length=1, fail_fast=True), Tag("<strings>")]
    | Annotated[Ids, Tag("<ids>")]
    | Annotated[list[Ids], Field(fail_fast=True), Tag("<batches>")],
    Discriminator(
        _kind_of_prompt,
        custom_error_type="prompt_type",
        custom_error_message="a prompt is a string, token ids, or a list of strings or of lists of token ids",
    ),
]


class CompletionsBody(SamplingFields):
    """What a text completion may ask for."""

    prompt: Prompt
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    best_of: Annotated[int, Field(ge=1)] | None = None
    suffix: Any = None

    def prompts(self) -> list[str | list[int]]:
        """Every prompt of the request: text, or token ids."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if isinstance(prompt[0], int):
            return [prompt]
        return list(prompt)

    def param_of(self, index: int) -> str:
        """The field which prompt `index` came from."""
        single = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        return "prompt" if single else f"prompt[{index}]"


def check_completions(body: CompletionsBody, settings: GatewaySettings) -> None:
    """Refuse what contradicts itself or is not supported; raises ApiError 400."""
    check_common(body, settings)
    n = body.n or 1
    if body.best_of is not None and body.best_of != n:
        raise unsupported("'best_of' must equal 'n'.", "best_of")
    if len(body.prompts()) * n > settings.max_choices:
        raise invalid(f"Prompts times 'n' can be at most {settings.max_choices}.", "prompt")
    if body.suffix not in (None, ""):
        raise unsupported("'suffix' is not supported.", "suffix")
    if body.echo and body.logprobs is not None:
        raise unsupported("Log probabilities of an echoed prompt are not supported.", "logprobs")
