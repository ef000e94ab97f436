"""What can go wrong while one token is chosen. Each concerns one sequence and leaves the others alone.

EngineFailureError
└── SamplingError      this sequence got no token
    └── GrammarError   its grammar's machine broke, or was fed a token the grammar forbids
"""

from engine_adapters.errors import EngineFailureError


class SamplingError(EngineFailureError):
    """No token could be chosen for one sequence; its request fails, the rest of the batch goes on."""


class GrammarError(SamplingError):
    """The grammar of one sequence failed."""
