"""A stand-in for SGLang's package with the parts that the worker calls: it answers with what it was asked."""

import asyncio
import os
import time
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any


class RefusedError(ValueError):
    status_code = 400


class Manager:
    """Generates the prompt's own ids as words, until a request is aborted."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.model_config = types.SimpleNamespace(context_len=64)
        self.aborted: list[str] = []
        # Fields of chats that it renders otherwise than the test does, or not at all.
        self.drifts = arguments.get("drifts", ())
        self.refused = arguments.get("refused", ())
        self._parsers = {"tool_call_parser": arguments["tool_call_parser"], "reasoning_parser": None}

    def config_value(self, name: str) -> Any:
        value = self._parsers[name]
        return "found" if value == "auto" else value

    async def breathe(self) -> None:
        await asyncio.sleep(0.001)

    async def generate_request(self, asked: Any, _: None) -> AsyncIterator[dict[str, Any]]:
        request, ids = asked.fields, asked.fields["input_ids"]
        if ids[0] == 13:
            os._exit(13)  # the process breaks
        if ids[0] == 16:
            print("x" * 1_000_000, flush=True)
        if ids[0] == 14:
            raise RefusedError("fourteen is refused")
        text, forever = "", ids[0] == 15
        tokens = 0
        while forever or tokens < len(ids):
            if request["rid"] in self.aborted:
                return
            text += f" {ids[tokens % len(ids)]}"
            tokens += 1
            last = not forever and tokens == len(ids)
            yield self._event(request, text, tokens, ids, last)
            await asyncio.sleep(0.001)

    def _event(self, request: Any, text: str, tokens: int, ids: list[int], last: bool) -> dict[str, Any]:
        stop = request["sampling_params"]["stop"]
        finish: dict[str, Any] | None = {"type": "length", "length": tokens} if last else None
        if stop and stop[0] in text:
            text = text[: text.index(stop[0])]
            finish = {"type": "stop", "matched": stop[0]}
        meta = {
            "finish_reason": finish, "prompt_tokens": len(ids), "completion_tokens": tokens, "cached_tokens": 3,
            "cached_tokens_details": {"device": 2, "host": 1}, "e2e_latency": 0.1,
        }  # fmt: skip
        if request.get("return_logprob"):
            meta["output_token_logprobs"] = [[-0.5, id, str(id)] for id in range(tokens)]
        return {"text": text, "output_ids": list(range(tokens)), "meta_info": meta}

    def abort_request(self, rid: str) -> None:
        self.aborted.append(rid)

    async def flush_cache(self) -> Any:
        return types.SimpleNamespace(success=not self.aborted, message="")

    async def get_internal_state(self) -> list[dict[str, Any]]:
        return [{"aborted": self.aborted}]


class Engine:
    def __init__(self, **arguments: Any) -> None:
        if arguments.get("fail"):
            raise RuntimeError(arguments["fail"])
        if arguments.get("loads"):
            Path(arguments["loads"]).touch()
            time.sleep(600)
        self.server_args = types.SimpleNamespace(
            page_size=1,
            enable_hierarchical_cache=True,
            hicache_storage_backend=None,
            disable_radix_cache=False,
        )
        self.tokenizer_manager = Manager(arguments)
        self.template_manager = None

    def shutdown(self) -> None:
        pass
