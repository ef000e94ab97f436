"""`cold:`, `store:` and `watermarks:` of an embedded engine: its tiers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from engine_adapters.base import Tier
from engine_adapters.embedded.cold_config import ColdCoding, Marks, SharedStore
from gateway.config.base import ConfigModel
from gateway.config.extras import need
from gateway.config.secret_ref import SecretRef

Size = Annotated[float, Field(gt=0, le=1 << 20)]  # GiB
_GIB = 1 << 30


class ColdConfig(ConfigModel):
    """How blocks are kept on disk and in the store; keys as the options `--cold-...`."""

    compression: Annotated[int, Field(ge=1, le=19)] | None = None  # zstd level
    quantize: Literal["int8", "fp8"] | None = None
    quantize_error: Annotated[float, Field(ge=0, le=0.5)] = 0.03
    secret: SecretRef | None = None  # encrypts them

    def coding(self, path: str, environ: Mapping[str, str]) -> ColdCoding:
        """As the engine takes it; raises ConfigError, which names `path`."""
        key = None if self.secret is None else self.secret.strong(f"{path}.secret", environ)
        return ColdCoding(self.compression, self.quantize, self.quantize_error, key)


class StoreConfig(ConfigModel):
    """A store that several servers share: a mounted folder, or Mooncake Store."""

    folder: Path | None = None
    gib: Size = 64  # of the folder, of all servers together
    mounted: bool = False  # the folder is, or lies in, a mount: without one nothing is written
    mooncake: Annotated[str | None, Field(default=None, pattern=r"^[^\s/]+:[0-9]{1,5}$")]  # its master
    mooncake_host: Annotated[str, Field(min_length=1, max_length=255)] = (
        "127.0.0.1"  # as others reach this one
    )
    mooncake_gib: Annotated[float, Field(ge=0, le=1 << 20)] = 0  # main memory given to it
    secret: SecretRef  # its servers sign blocks with it

    @model_validator(mode="after")
    def _one_store(self) -> "StoreConfig":
        if (self.folder is None) == (self.mooncake is None):
            raise ValueError("write either folder or mooncake")
        if self.mounted and self.folder is None:
            raise ValueError("mounted says something of a folder, and none is written")
        return self

    def shared(self, path: str, environ: Mapping[str, str]) -> SharedStore:
        """As the engine takes it; raises ConfigError, which names `path`."""
        if self.mooncake is not None:
            need(f"{path}.mooncake", "mooncake")
        return SharedStore(
            self.secret.strong(f"{path}.secret", environ),
            self.folder,
            int(self.gib * _GIB),
            self.mooncake,
            self.mooncake_host,
            int(self.mooncake_gib * _GIB),
            self.mounted,
        )


class MarksConfig(ConfigModel):
    """In idle time room is made above `start`, a share of the tier that is in use, down to `stop`."""

    start: Annotated[float, Field(ge=0, le=1)] = Marks().start
    stop: Annotated[float, Field(ge=0, le=1)] = Marks().stop

    @model_validator(mode="after")
    def _in_order(self) -> "MarksConfig":
        if self.stop > self.start:
            raise ValueError(f"stop ({self.stop}) is above start ({self.start})")
        return self


class WatermarksConfig(ConfigModel):
    """Of each tier; those that are not written are as they always were."""

    device: MarksConfig = MarksConfig()
    host: MarksConfig = MarksConfig()
    disk: MarksConfig = MarksConfig()
    store: MarksConfig = MarksConfig()

    @property
    def written(self) -> dict[Tier, Marks]:
        """Those that the file says."""
        tiers: tuple[Tier, ...] = ("device", "host", "disk", "store")
        said = [tier for tier in tiers if tier in self.model_fields_set]
        return {tier: Marks(getattr(self, tier).start, getattr(self, tier).stop) for tier in said}
