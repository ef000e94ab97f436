"""What all parts of the configuration have in common."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class ConfigModel(BaseModel):
    """A part of the file: a key that nothing reads is refused, since it is a slip."""

    inherits: ClassVar[bool] = False  # True: what is not written here is as written somewhere above

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)
