from typing import Any


class ChatCompletionRequest:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields
