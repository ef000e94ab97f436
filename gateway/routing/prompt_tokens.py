"""The tokens of a prompt that another engine will make: rendered and encoded here as it will do there."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canon.errors import PromptTooLongError, TemplateError
from canon.tokens.steps import Steps
from engine_adapters.remote.relay import Route
from gateway.prompts import PromptSource

log = logging.getLogger("kvgate.gateway")

Ids = NDArray[np.int32]

_HIGHEST = 2**31 - 1
# Where clients may write token ids, by route.
IDS_IN: Mapping[Route, str] = MappingProxyType({"completions": "prompt", "embeddings": "input"})
_TEXT_PARTS = ("text", "refusal")


class PromptTokens:
    """Of one engine's model. Thread-safe; takes as long as rendering and encoding. Never raises.

    Attributes:
        failed: requests whose prompt could not be made here, and are known by their text.
    """

    def __init__(self, prompts: PromptSource, vocabulary: int | None = None) -> None:
        """`vocabulary`: one more than the highest token id of the model; None: not known."""
        self._prompts = prompts
        self._vocabulary = vocabulary
        self._told = False
        self.failed = 0

    def steps(
        self, route: Route, body: Mapping[str, Any], scope: str, most: int | None = None
    ) -> Steps[Ids | None]:
        """int32 [tokens], with a stop between the parts of the work; None: another route, several prompts, media, what
        the template does not take, or a prompt of more than `most` tokens, which its engine will judge."""
        try:
            if route == "chat":
                return (yield from self._chat(body, scope, most))
            return self._completion(body, scope, most) if route == "completions" else None
        except PromptTooLongError:
            return None
        except TemplateError:
            self.failed += 1
        except Exception as error:  # noqa: BLE001  whatever a body has in it, the request goes on
            self.failed += 1
            self._tell(error)
        return None

    def strange(self, route: Route, body: Mapping[str, Any]) -> str | None:
        """Where a body has a token id that the model has not, as a param; None: nowhere.

        Such an id ends some engines: SGLang looks it up in a table of weights, and its process dies with that.
        """
        field = IDS_IN.get(route, "")
        given = body.get(field)
        if self._vocabulary is None or not isinstance(given, list):
            return None
        if given and isinstance(given[0], list):
            return next((f"{field}[{i}]" for i, each in enumerate(given) if self._is_strange(each)), None)
        return field if self._is_strange(given) else None

    def _is_strange(self, ids: object) -> bool:
        assert self._vocabulary is not None
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            return False  # what it is, the engine says
        return bool(ids) and not (min(ids) >= 0 and max(ids) < self._vocabulary)

    def forget(self) -> int:
        """Drop all encodings that are remembered, of every scope; how many there were."""
        return self._prompts.forget()

    def _chat(self, body: Mapping[str, Any], scope: str, most: int | None) -> Steps[Ids | None]:
        messages = body.get("messages")
        if not isinstance(messages, list) or any(map(_has_media, messages)):
            return None  # how many tokens a medium is, only its engine knows
        opens, goes_on = body.get("add_generation_prompt"), bool(body.get("continue_final_message"))
        switches = body.get("chat_template_kwargs")
        prompt = yield from self._prompts.chat_steps(
            messages,
            body.get("tools") or None,
            add_generation_prompt=not goes_on if opens is None else bool(opens),
            continue_final_message=goes_on,
            template_kwargs=switches if isinstance(switches, dict) else {},
            scope=scope,
            most=most,
        )
        return prompt.ids

    def _completion(self, body: Mapping[str, Any], scope: str, most: int | None) -> Ids | None:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            (prompt,) = prompt
        if isinstance(prompt, str):
            special = body.get("add_special_tokens", True) is not False
            return self._prompts.encode(prompt, add_special_tokens=special, scope=scope, most=most)
        if isinstance(prompt, list) and all(isinstance(i, int) and 0 <= i <= _HIGHEST for i in prompt):
            return np.array(prompt, np.int32)
        return None

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            # Its own text is left out, since it may quote a prompt.
            fields = {"error": type(error).__name__}
            log.error("a prompt could not be made here; it is known by its text", extra={"fields": fields})


def _has_media(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    if type(content) is str:
        return False
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") not in _TEXT_PARTS for part in content
    )
