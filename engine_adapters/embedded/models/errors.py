"""What can go wrong between a model's name and a folder the engine can load.

ModelError
├── ModelNotFoundError         no such folder, no such name at the hub, or the hub cannot be reached
├── UnusableCheckpointError    the folder has no weights, tokenizer or configuration that can be loaded safely
├── RemoteCodeRefusedError     the model wants to run Python code of its own, which the operator did not allow
└── ModelCacheError            the cache folder cannot be written, or what is converted into it is broken

Every message names the cause and the next step.
"""

from engine_adapters.errors import EngineError


class ModelError(EngineError):
    """Root of everything that keeps a model from being found and made loadable."""


class ModelNotFoundError(ModelError):
    """Nothing is there under the given name."""


class UnusableCheckpointError(ModelError):
    """Something is there, but it cannot be loaded as it is."""


class RemoteCodeRefusedError(ModelError):
    """Loading the model would run code that came with it."""


class ModelCacheError(ModelError):
    """A folder of the cache could not be built."""
