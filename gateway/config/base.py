"""What all parts of the configuration have in common."""

from pydantic import BaseModel, ConfigDict


class ConfigModel(BaseModel):
    """A part of the file: a key that nothing reads is refused, since it is a slip."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
