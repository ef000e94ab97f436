"""How the next token is chosen: parameters, penalties, filters, grammars and reproducible draws."""

from engine_adapters.embedded.sampling.errors import GrammarError, GrammarLimitError, SamplingError
from engine_adapters.embedded.sampling.grammar import GrammarCompiler, GrammarMatcher
from engine_adapters.embedded.sampling.sampler import SampledToken, Sampler
from engine_adapters.embedded.sampling.state import SamplingState, check_params

__all__ = [
    "GrammarCompiler",
    "GrammarError",
    "GrammarLimitError",
    "GrammarMatcher",
    "SampledToken",
    "Sampler",
    "SamplingError",
    "SamplingState",
    "check_params",
]
