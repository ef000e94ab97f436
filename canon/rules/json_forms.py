"""JSON that shows the model what to write: the order in it is the order of generation, so no rule touches it."""

import re

# A value that stands for a value, and names under which forms, examples and schemas are kept.
_PLACEHOLDER = re.compile(
    r':\s*"(?:\.\.\.|…|<[^"<>]*>|\{[^"{}]*\}|\[[^"\[\]]*\]|str(?:ing)?|int(?:eger)?|number|float|bool(?:ean)?)"'
)
_NAMED = re.compile(
    r'"(?:\w*examples?|\w*samples?|few_?shots?|\w*output\w*|\w*response\w*|\w*schemas?|\w*format|\w*template|properties'
    r'|\$\w+|parameters|arguments|reasoning|thoughts?|thinking|answer|tool_calls)"\s*:',
    re.IGNORECASE,
)


def may_show_form(json_text: str) -> bool:
    """Whether a JSON text in a system text may be an output form, an example of an output, or a schema."""
    return _PLACEHOLDER.search(json_text) is not None or _NAMED.search(json_text) is not None


_SCHEMA = re.compile(r'"(?:properties|\$defs|anyOf|oneOf)"\s*:')
_OF_OBJECTS = re.compile(r'"type"\s*:\s*"object"|"\$schema"\s*:')


def may_be_schema(json_text: str) -> bool:
    """Whether a JSON text may be a JSON schema, whose properties are written in their order."""
    return _SCHEMA.search(json_text) is not None and _OF_OBJECTS.search(json_text) is not None
