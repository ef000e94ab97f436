"""Typed access to the key-value part of a GGUF file."""

from typing import Any, TypeVar

from engine_adapters.embedded.models.errors import UnusableCheckpointError

T = TypeVar("T")


class GgufFields:
    """The metadata of one opened `gguf.GGUFReader`."""

    def __init__(self, reader: Any) -> None:
        self._fields = reader.fields

    def get(self, key: str, kind: type[T]) -> T:
        """The value under `key`.

        Raises:
            UnusableCheckpointError: it is missing or not of this kind.
        """
        field = self._fields.get(key)
        value = None if field is None else field.contents()
        if not isinstance(value, kind):
            raise UnusableCheckpointError(
                f"the GGUF file says {value!r:.40} for {key}, where {kind.__name__} is due"
            )
        return value
