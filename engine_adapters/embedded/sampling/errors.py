"""What can go wrong while one token is chosen. Each concerns one sequence and leaves the others alone.

EngineFailureError
└── SamplingError      this sequence got no token
    └── GrammarError   its grammar's machine broke, or was fed a token the grammar forbids
        └── GrammarLimitError   the grammar is too large to be followed to its end: the request is at fault
"""

from engine_adapters.errors import EngineFailureError


class SamplingError(EngineFailureError):
    """No token could be chosen for one sequence; its request fails, the rest of the batch goes on."""


class GrammarError(SamplingError):
    """The grammar of one sequence failed."""


class GrammarLimitError(GrammarError):
    """The grammar of one sequence passed a bound of the grammar library while it was followed."""
