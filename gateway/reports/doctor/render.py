"""Does our render of a chat equal the engine's? By token ids where it tells them, else by counts."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from canon.errors import TemplateError
from canon.tokens import PromptTokenizer
from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.http_engine import HttpEngine
from gateway.reports.doctor.checkup import Check
from gateway.reports.doctor.prober import Prober, RefusedError, TooMuchError

Chat: TypeAlias = Sequence[Mapping[str, Any]]

CHATS: Mapping[str, Chat] = {
    "one user message": [{"role": "user", "content": "What is the capital of France?"}],
    "a system message": [
        {"role": "system", "content": "Answer briefly.\n\n- No lists.\n- No code."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    "several turns": [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "  Another one, please.  "},
    ],
    "many scripts": [{"role": "user", "content": "Grüße, 你好, Привет, 🙂🙂 <b>12,345.67</b>\t\tend"}],
}


CHAT_WORDS = 120  # far more tokens than all of them have


async def check_render(
    tokenizer: PromptTokenizer | None, kind: str, engine: HttpEngine, prober: Prober
) -> Check:
    """Compare every chat of `CHATS`. `tokenizer`: of the model's folder; None: nothing to compare with."""
    name, question = "render", "Does our render of a chat equal the engine's?"
    if tokenizer is None:
        return Check(name, question, "unknown", "Not compared: give the model's folder with --tokenizer.")
    if not tokenizer.has_chat_template:
        return Check(name, question, "unknown", "Not compared: the folder has no chat template.")
    wrong, ways, compared = [], set(), 0
    for what, chat in CHATS.items():
        try:
            ours = tokenizer.chat(chat).ids
        except TemplateError:
            continue  # a template without system messages, for example, which the engine refuses as well
        way, difference = await _difference(ours, chat, kind, engine, prober)
        ways.add(way)
        compared += way != ""
        if difference:
            wrong.append(f"{what}: {difference}")
    if not compared:
        return Check(name, question, "unknown", "The engine tells neither token ids nor counts.")
    by = " and ".join(sorted(ways - {""}))
    if wrong:
        fix = "Give kvgate the folder and the chat template that the engine was started with."
        return Check(name, question, "no", f"{'; '.join(wrong)} (by {by}).", fix)
    return Check(name, question, "yes", f"{compared} chats, by {by}.")


async def _difference(
    ours: NDArray[np.int32], chat: Chat, kind: str, engine: HttpEngine, prober: Prober
) -> tuple[str, str]:
    """By what it was compared ("" where it was not), and the difference in words ("" where there is none)."""
    theirs = await _engine_ids(kind, engine, prober.model, chat)
    if theirs is not None:
        return "token ids", _first_difference(ours.tolist(), theirs)
    try:
        told = await prober.send(chat)
    except (RefusedError, TooMuchError):
        return "", ""
    if told.prompt is None:
        return "", ""
    same = told.prompt == len(ours)
    return "token counts", "" if same else f"{len(ours)} tokens here, {told.prompt} there"


def _first_difference(ours: list[int], theirs: list[int]) -> str:
    if ours == theirs:
        return ""
    at = next(
        (i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
        min(len(ours), len(theirs)),
    )
    return f"{len(ours)} tokens here, {len(theirs)} there, different from token {at} on"


async def _engine_ids(kind: str, engine: HttpEngine, model: str, chat: Chat) -> list[int] | None:
    """The engine's own tokens of a chat; None where it has no route that tells them."""
    try:
        if kind == "vllm":
            asked = {"model": model, "messages": chat, "add_generation_prompt": True}
            said = await engine.ask("POST", f"{engine.server}/tokenize", json=asked)
        elif kind == "llama_cpp":
            text = await engine.ask("POST", f"{engine.server}/apply-template", json={"messages": chat})
            asked = {"content": text.get("prompt"), "add_special": True, "parse_special": True}
            said = await engine.ask("POST", f"{engine.server}/tokenize", json=asked)
        else:
            return None
    except EngineNotReadyError:
        return None  # an older version without the route: counts are compared instead
    ids = said.get("tokens")
    return ids if isinstance(ids, list) and all(isinstance(each, int) for each in ids) else None
