"""The keys of a request's prompt: of its tokens where the gateway has them, else of its text."""

import numpy as np

from gateway.routing.chain import PromptChain
from gateway.routing.prompt_text import prompt_bytes, prompt_seed
from gateway.routing.router import RouteAsk


def chain_of(ask: RouteAsk) -> PromptChain:
    """Nothing of it is shared with what is asked in another scope, under another salt, or of another LoRA."""
    seed = prompt_seed(ask.scope, ask.body, counted=ask.tokens is not None, salt=ask.tenant.salt)
    if ask.tokens is None:
        return PromptChain(seed, prompt_bytes(ask.body))
    return PromptChain(seed, np.ascontiguousarray(ask.tokens, dtype="<i4").data)
