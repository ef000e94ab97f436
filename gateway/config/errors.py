"""What is wrong with a configuration file."""


class ConfigError(Exception):
    """One message a key; each begins with the key's path."""

    def __init__(self, *messages: str) -> None:
        super().__init__("\n".join(messages))
        self.messages = messages
