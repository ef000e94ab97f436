"""`/tokenize` and `/detokenize` as clients of vLLM and SGLang have them, in the words of llama.cpp's server.

vLLM       `prompt`, `add_special_tokens` (true), `return_token_strs`
           -> `tokens`, `count`, `max_model_len`, `token_strs`
           `tokens` -> `prompt`
SGLang     `prompt`, `add_special_tokens` (true) -> `tokens`, `count`, `max_model_len`; `tokens` -> `text`
llama.cpp  `content`, `add_special` (false), `parse_special` (true), `with_pieces` -> `tokens`; `tokens` -> `content`
"""

from typing import Any

import orjson

from engine_adapters.errors import InvalidRequestError
from engine_adapters.remote.relay import RelayRequest


def tokens_asked(request: RelayRequest, engine: str) -> dict[str, bytes]:
    """Keys to set upstream. A request with `content` is llama.cpp's own, and goes on as it is.

    Raises:
        InvalidRequestError: what is to be tokenized is no single text.
    """
    fields = request.fields()
    if "content" in fields:
        return {}
    prompt = fields.get("prompt")
    if not isinstance(prompt, str):
        message = (
            f"The engine {engine} tokenizes one text, 'prompt', and neither lists of texts nor messages."
        )
        raise InvalidRequestError(message, param="prompt", code="unsupported_value")
    special = fields.get("add_special_tokens")
    return {
        "content": orjson.dumps(prompt),
        "add_special": b"false" if special is False else b"true",
        "with_pieces": b"true" if fields.get("return_token_strs") else b"false",
    }


def tokens_answered(body: bytes, context: int | None) -> bytes:
    """What the engine said of a text's tokens, with what clients of the others look for beside them."""
    said = _object(body)
    tokens = said.get("tokens")
    if not isinstance(tokens, list):
        return body
    more: dict[str, Any] = {"count": len(tokens), "max_model_len": context}
    if tokens and isinstance(tokens[0], dict):
        more["token_strs"] = [_piece(each.get("piece")) for each in tokens]
        more["tokens"] = [each.get("id") for each in tokens]
    return orjson.dumps({**said, **more})


def text_answered(body: bytes) -> bytes:
    """The text of tokens, under the names that it has at vLLM and SGLang, too."""
    said = _object(body)
    text = said.get("content")
    return orjson.dumps({**said, "prompt": text, "text": text}) if isinstance(text, str) else body


def _object(body: bytes) -> dict[str, Any]:
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return said if isinstance(said, dict) else {}


def _piece(piece: object) -> str:
    """A part of a character comes as its bytes."""
    return bytes(piece).decode("utf-8", "replace") if isinstance(piece, list) else str(piece)
