"""`aliases:` in the configuration file: names that clients may use for a model of one engine."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from gateway.aliases import Alias
from gateway.config.base import ConfigModel
from gateway.config.engines import Name

AliasName = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f][^\x00-\x1f]{0,199}$")]


class AliasConfig(ConfigModel):
    """What one name stands for."""

    engine: Name
    model: Annotated[str, Field(min_length=1)]  # as clients of that engine say it

    def made(self) -> Alias:
        """The same for the gateway."""
        return Alias(self.engine, self.model)


def check_aliases(aliases: Mapping[str, AliasConfig], engines: Mapping[str, list[str]]) -> None:
    """`engines` are those of the file, each with the models that it names. Raises ValueError for what cannot be."""
    models = {model for named in engines.values() for model in named}
    for name, alias in aliases.items():
        if alias.engine not in engines:
            known = ", ".join(engines)
            raise ValueError(f"aliases: {name!r} stands for a model of {alias.engine!r}; there are {known}")
        if name in models:
            raise ValueError(f"aliases: {name!r} is the name of a model")
        named = engines[alias.engine]
        if named and alias.model not in named:
            raise ValueError(
                f"aliases: {name!r} stands for {alias.model!r}, which {alias.engine} does not have"
            )
