"""What is taken out of captured bodies. Equal texts leave equal marks, so that what breaks prefixes still shows."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

from gateway.ledger.errors import LedgerConfigError

_Step: TypeAlias = str | int | None  # a key, an index, or any of them
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\*)\]")
_DEPTH = 200  # of a body; what lies deeper is left out


@dataclass(frozen=True, slots=True)
class Redaction:
    """How bodies are changed before they are kept.

    Attributes:
        paths: such as `messages[*].content`, `user` or `metadata.*`; what lies there becomes a mark.
        patterns: regular expressions; what they match in any text becomes a mark.
        structure_only: every text but the names of the API becomes marks, line by line, of the same length.
    """

    paths: Sequence[str] = ()
    patterns: Sequence[str] = ()
    structure_only: bool = False
    _steps: list[list[_Step]] = field(init=False, default_factory=list)
    _compiled: list[re.Pattern[str]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Raises LedgerConfigError for a path or pattern that cannot be read."""
        self._steps.extend(map(_parsed, self.paths))
        for pattern in self.patterns:
            try:
                self._compiled.append(re.compile(pattern))
            except re.error as error:
                raise LedgerConfigError(f"{pattern!r:.60} is no regular expression: {error}") from None

    @property
    def changes(self) -> bool:
        """Whether anything is taken out at all."""
        return bool(self._steps or self._compiled or self.structure_only)

    def applied(self, body: Any, key: bytes) -> Any:
        """A copy of `body` with marks; `key` is what nobody can guess texts from marks without."""
        return self._walked(body, self._steps, key, 0, named=False)

    def _walked(
        self, value: Any, paths: Sequence[Sequence[_Step]], key: bytes, depth: int, *, named: bool
    ) -> Any:
        if depth > _DEPTH or any(not steps for steps in paths):
            return mark(_text_of(value), key)
        if isinstance(value, Mapping):
            return {
                self._key(name, key): self._walked(
                    each, _below(paths, name), key, depth + 1, named=name in _TELLING
                )
                for name, each in value.items()
            }
        if isinstance(value, list):
            return [
                self._walked(each, _below(paths, at), key, depth + 1, named=named)
                for at, each in enumerate(value)
            ]
        return self._text(value, key, named=named) if isinstance(value, str) else value

    def _key(self, name: str, key: bytes) -> str:
        return name if not self.structure_only or name in _API else mark(name, key)

    def _text(self, text: str, key: bytes, *, named: bool) -> str:
        if self.structure_only:
            return (
                text
                if named and text in _API
                else "".join(_stand_in(line, key) for line in text.splitlines(keepends=True))
            )
        for pattern in self._compiled:
            text = pattern.sub(lambda found: mark(found[0], key) if found[0] else "", text)
        return text


def mark(text: str, key: bytes) -> str:
    """What stands where a text was."""
    return f"[redacted {_digest(text, key)[:12]}]"


def _stand_in(line: str, key: bytes) -> str:
    """As many bytes as the line has, the same ones for the same line."""
    said = line.rstrip("\r\n")
    if not said.strip():
        return line
    size = len(said.encode("utf-8", "surrogatepass"))
    digest = _digest(said, key)
    return (digest * (size // len(digest) + 1))[:size] + line[len(said) :]


def _digest(text: str, key: bytes) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12, key=key).hexdigest()


def _text_of(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except (ValueError, RecursionError):
        return "nested too deep to tell it from others"


def _below(paths: Sequence[Sequence[_Step]], step: str | int) -> list[Sequence[_Step]]:
    return [steps[1:] for steps in paths if steps and steps[0] in (step, None)]


def _parsed(path: str) -> list[_Step]:
    steps: list[_Step] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            break
        name, index = found.groups()
        steps.append(None if "*" in (name, index) else int(index) if index is not None else name)
        at = found.end()
    if not steps or at < len(path):
        raise LedgerConfigError(f"{path!r:.60} is no path: write messages[*].content, user or metadata.*")
    return steps


# Keys whose values are names of the API too, where they are among `_API`.
_TELLING = frozenset({"role", "type", "object", "finish_reason", "tool_choice", "reasoning_effort", "effort"})
_API = frozenset(
    """
    model messages role content name tools tool_choice tool_calls tool_call_id function arguments parameters type id
    description strict response_format json_schema schema properties required items enum anyOf allOf oneOf $ref $defs
    additionalProperties stream stream_options include_usage temperature top_p top_k min_p max_tokens
    max_completion_tokens max_output_tokens n stop seed user logprobs top_logprobs logit_bias presence_penalty
    frequency_penalty parallel_tool_calls reasoning_effort reasoning effort reasoning_content thinking budget_tokens
    prompt suffix echo input instructions output text image_url url detail input_audio file metadata store
    previous_response_id cache_salt cache_control prompt_cache_key chat_template_kwargs system source media_type data
    tool_use tool_result tool_use_id is_error input_schema input_text output_text image message function_call
    function_call_output call_id summary status choices index finish_reason usage prompt_tokens completion_tokens
    total_tokens prompt_tokens_details cached_tokens input_tokens output_tokens created object delta developer
    assistant tool string number integer boolean array null auto none low medium high minimal stop length
    json_object chat.completion text_completion response ephemeral enabled disabled
    """.split()  # noqa: SIM905  read as words
)
