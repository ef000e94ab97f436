"""Reads an answer while it passes: usage, first content, finish, errors. What passes is changed only where asked."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from engine_adapters.remote.json_patch import patched
from engine_adapters.remote.relay import Account, Rewrite, RewriteError
from engine_adapters.reuse.model_names import ModelNames
from engine_adapters.reuse.profiles import Profile, read_usage
from engine_adapters.reuse.reading import NOTHING, UsageRead, part
from engine_adapters.reuse.sse import EventSplitter, event_data

_CONTENT = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal", "function_call", "audio")
_LONGEST_REASON = 200  # characters
_DELTAS = (
    "response.output_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
)


class AnswerWatcher:
    """What every kind of answer says, into an Account. `names` of models are changed; None: they stay."""

    def __init__(
        self,
        profile: Profile,
        prompts: int = 1,
        clock: Callable[[], float] = time.monotonic,
        names: ModelNames | None = None,
    ) -> None:
        self.account = Account(NOTHING)
        self._profile = profile
        self._prompts = prompts
        self._clock = clock
        self._names = names

    def _take_usage(self, payload: Mapping[str, Any]) -> UsageRead:
        read = read_usage(self._profile, payload, self._prompts)
        account = self.account
        account.reuse = read.reuse
        account.completion_tokens = read.completion_tokens
        account.reasoning_tokens = read.reasoning_tokens
        return read

    def _take_finish(self, payload: Mapping[str, Any]) -> None:
        choices = payload.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        # As in `part`, most are dicts.
        told = first if type(first) is dict or isinstance(first, Mapping) else None
        reason = None if told is None else told.get("finish_reason")
        reason = reason or payload.get("stop_reason") or part(payload, "delta").get("stop_reason")
        if isinstance(reason, str):
            self.account.finish = reason[:_LONGEST_REASON]

    def _take_id(self, response: Mapping[str, Any]) -> None:
        name = response.get("id")
        if response.get("object") == "response" and isinstance(name, str):
            self.account.response_id = name

    def _take_error(self, payload: Mapping[str, Any]) -> bool:
        error = payload.get("error")
        if error is None and payload.get("type") != "error" and payload.get("object") != "error":
            return False
        told = error if isinstance(error, Mapping) else payload
        kind = told.get("type") or told.get("code") or "error"
        self.account.error = str(kind)[:100]
        return True


class WholeWatcher(AnswerWatcher):
    """An answer that is one JSON object."""

    def read(self, body: bytes, rewrite: Rewrite | None = None) -> bytes:
        """Take what the body says; the body to pass on, the very same bytes unless `rewrite` changes it."""
        self.account.first_token_at = self._clock()
        self.account.ended = True
        try:
            payload = orjson.loads(body)
        except orjson.JSONDecodeError:
            return body
        if not isinstance(payload, dict):
            return body
        self._take_error(payload)
        self._take_finish(payload)
        self._take_id(payload)
        read = self._take_usage(payload)
        named = payload if self._names is None else self._names.payload(payload)
        changed: Mapping[str, Any] | None = named
        if rewrite is not None and isinstance(payload.get("usage"), dict):
            changed = rewrite(named, read)
        if changed is None:
            changed = named
        return body if changed is payload else _written(body, payload, changed)


class StreamWatcher(AnswerWatcher):
    """A stream of server-sent events.

    Without `rewrite`, `rewrite_error` and `names` chunks pass as they are and at once, and a copy is read. With one of
    them whole events pass, each as soon as it is whole; only those with usage, an error or a name in them are changed.
    """

    def __init__(
        self,
        profile: Profile,
        prompts: int = 1,
        rewrite: Rewrite | None = None,
        clock: Callable[[], float] = time.monotonic,
        rewrite_error: RewriteError | None = None,
        names: ModelNames | None = None,
    ) -> None:
        super().__init__(profile, prompts, clock, names)
        self._splitter = EventSplitter()
        self._rewrite = rewrite
        self._rewrite_error = rewrite_error
        self._as_came = rewrite is None and rewrite_error is None and names is None
        self._begun: dict[str, Any] = {}  # usage of an event at the start, which later ones add to
        self._details: Mapping[str, Any] = {}  # SGLang's, which come in an event of their own before usage

    def feed(self, chunk: bytes) -> bytes:
        """What goes on to the client for this chunk."""
        events = self._splitter.feed(chunk)
        if len(events) == 1 and not self._splitter.overflowed:
            passed = self._event(events[0])
            return chunk if self._as_came else passed
        if self._splitter.overflowed:
            return chunk if self._as_came else b"".join(events)
        all_passed = [self._event(event) for event in events]
        return chunk if self._as_came else b"".join(all_passed)

    def end(self) -> bytes:
        """The stream has ended by itself; what is left of it to pass on."""
        if self._splitter.overflowed:
            self.account.ended = True  # as far as anybody can tell: the rest was not read
        left = self._splitter.rest()
        if left:
            passed = self._event(left)
            left = b"" if self._as_came else passed
        return left

    def _event(self, event: bytes) -> bytes:
        data = event_data(event)
        if not data:
            return event
        if data == b"[DONE]":
            self.account.ended = True
            return event
        if not self._worth_reading(data):
            return event if self._names is None else self._names.chunk(event)
        try:
            payload = orjson.loads(data)
        except orjson.JSONDecodeError:
            return event
        if not isinstance(payload, dict):
            return event
        if self._names is not None and (named := self._names.payload(payload)) is not payload:
            event = (
                _built(event, _written(data, payload, named))
                if "type" in payload
                else self._names.chunk(event)
            )
            data, payload = event_data(event), named
        return self._payload(event, data, payload)

    def _worth_reading(self, data: bytes) -> bool:
        """Until the first content every event is; later only those that may say what is counted."""
        if self.account.first_token_at is None:
            return True
        has_usage = (
            (b'"usage"' in data and b'"usage":null' not in data and b'"usage": null' not in data)
            or b'"timings"' in data
            or b'"sglext"' in data
            or b'"usageMetadata"' in data
        )
        return has_usage or b'"error"' in data or b'"type"' in data or _has_reason(data)

    def _payload(self, event: bytes, data: bytes, payload: dict[str, Any]) -> bytes:
        kind = payload.get("type")
        if self.account.first_token_at is None and _has_content(payload, kind):
            self.account.first_token_at = self._clock()
        if self._take_error(payload) and self._rewrite_error is not None:
            return _built(event, orjson.dumps(self._rewrite_error(payload)))
        self._take_finish(payload)
        if kind in ("message_stop", "response.completed", "response.incomplete", "response.failed"):
            self.account.ended = True
        said = self._usage_in(payload, kind)
        if said is None:
            return event
        read = self._take_usage(said)
        if self._rewrite is None:
            return event
        changed = self._rewrite(payload, read)
        if changed is payload:
            return event
        return b"" if changed is None else _built(event, _written(data, payload, changed))

    def _usage_in(self, payload: dict[str, Any], kind: object) -> Mapping[str, Any] | None:
        """The payload that a reader understands; None where no usage is in it."""
        if kind == "message_start":
            self._begun = dict(part(payload, "message", "usage"))
            return {"usage": self._begun} if self._begun else None
        if kind == "message_delta" and part(payload, "usage"):
            self._begun.update({key: value for key, value in payload["usage"].items() if value is not None})
            return {"usage": self._begun}
        if isinstance(kind, str) and kind.startswith("response."):
            inner = part(payload, "response")
            self._take_id(inner)
            return inner if part(inner, "usage") else None
        if part(payload, "sglext", "cached_tokens_details"):
            self._details = payload["sglext"]
        if part(payload, "usage") and self._details:
            return {**payload, "sglext": self._details}
        if (
            part(payload, "sglext")
            or part(payload, "usage")
            or part(payload, "timings")
            or part(payload, "meta_info")
            or part(payload, "usageMetadata")
            or part(payload, "metadata", "usage")
        ):
            return payload
        return None


def _has_reason(data: bytes) -> bool:
    """Whether there is a reason to finish; engines write null for one with every token."""
    reasons = data.count(b'_reason"')
    return reasons > 0 and reasons > data.count(b'_reason":null') + data.count(b'_reason": null')


def _has_content(payload: Mapping[str, Any], kind: object) -> bool:
    if kind is not None:
        return kind in _DELTAS or kind == "content_block_delta"
    choices = payload.get("choices")
    return isinstance(choices, list) and any(_choice_has_content(choice) for choice in choices)


def _choice_has_content(choice: Any) -> bool:
    if not isinstance(choice, Mapping):
        return False
    delta = part(choice, "delta")
    return bool(choice.get("text")) or any(delta.get(name) for name in _CONTENT)


def _built(event: bytes, data: bytes) -> bytes:
    """The event with other data; its name and id lines stay."""
    lines = [line for line in event.splitlines() if line and not line.startswith(b"data:")]
    return b"\n".join([*lines, b"data: " + data]) + b"\n\n"


def _written(text: bytes, payload: Mapping[str, Any], changed: Mapping[str, Any]) -> bytes:
    """`text`, which says `payload`, as it says `changed`: what is the same in both keeps its bytes."""
    if payload.keys() - changed.keys():
        return orjson.dumps(changed)
    others = {key: value for key, value in changed.items() if value is not payload.get(key)}
    return patched(text, {key: orjson.dumps(value) for key, value in others.items()})
