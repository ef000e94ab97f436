"""The keys of a request's prompt: of its tokens where the gateway has them, else of its text."""

import asyncio

import numpy as np

from gateway.routing.chain import Chaining, PromptChain, chunk_digests
from gateway.routing.prompt_text import prompt_bytes, prompt_seed
from gateway.routing.router import RouteAsk

_INLINE = 1 << 20  # bytes; larger bodies are hashed off the event loop


def chain_of(ask: RouteAsk, chaining: Chaining = chunk_digests) -> PromptChain:
    """Nothing of it is shared with what is asked in another scope, under another salt, or of another LoRA."""
    if ask.chain is not None:
        return ask.chain
    seed = ask.seed or prompt_seed(ask.scope, ask.body, counted=ask.tokens is not None, salt=ask.tenant.salt)
    if ask.tokens is None:
        return PromptChain(seed, prompt_bytes(ask.body), chaining)
    return PromptChain(seed, np.ascontiguousarray(ask.tokens, dtype="<i4").data, chaining)


async def chained(ask: RouteAsk, chaining: Chaining = chunk_digests) -> PromptChain:
    """The same, which large prompts do not hold up the event loop for."""
    if ask.chain is not None or ask.size <= _INLINE:
        return chain_of(ask, chaining)
    return await asyncio.to_thread(chain_of, ask, chaining)
