from typing import Any


class GenerateReqInput:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields
