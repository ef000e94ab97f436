"""The JSON schema of the configuration file."""

import orjson

from gateway.config.model import Config


def schema_text() -> str:
    """As `Config` checks it, but for what only code can say; JSON Schema 2020-12."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
        "title": "kvgate",
    }
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
