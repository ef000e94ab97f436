"""The refusal of a model that this engine cannot run."""

from engine_adapters.errors import EngineError


class UnsupportedModelError(EngineError):
    """The model cannot run over paged KV; the message says which model and why."""
