"""Templates say the same as under Jinja's own compiler, errors included."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jinja2.compiler import CodeGenerator
from jinja2.sandbox import ImmutableSandboxedEnvironment

from canon.errors import TemplateError
from canon.tokens import template as module
from canon.tokens.limits import ChatLimits
from canon.tokens.sandbox import ChatTemplateEnvironment
from canon.tokens.template import ChatTemplate

DATA = sorted((Path(__file__).parents[1] / "data").glob("*.jinja"))
CALLS = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "be <b>"},
    {"role": "user", "content": "hi"},
    {"role": "user"},
    {"role": "user", "content": 5},
    {"role": "user", "content": [{"type": "text", "text": "p"}, {"type": "image"}]},
    {"role": "assistant", "content": "a", "reasoning_content": "t"},
    {"role": "assistant", "content": "<think>x</think>y", "tool_calls": CALLS},
    {"role": "assistant", "tool_calls": CALLS},
    {"role": "tool", "content": "r", "tool_call_id": "a"},
]
PARTS = [
    "{{ 'a' + 1 }}",
    "{{ 1 + 2 + 3 }}{{ 1.5 + 2 - 3 }}",
    "{{ 'a' + missing_name }}",
    "{{ 'a' + ('b' + ('c' + 'd')) + 'e' }}",
    "{{ [1] + [2] + [3] }}",
    "{{ ('<' | escape) + '<' + '>' }}{{ '<' + ('<' | escape) + '>' }}",
    "{{ 'a' + message.content + 'b' }}",
    "{{ 'a' + messages[1].content + 'b' }}",
    "{{ 'x' * 3 + 'y' ~ 1 + 2 }}{{ 'x' ~ 3 + 4 }}",
    "{{ messages[0].keys is defined }}{{ messages[0].items() | list | length }}{{ messages[0].nothing is defined }}",
    "{% macro twice(a) %}{{ a + a }}{% endmacro %}{{ twice('z') + twice('y') }}",
    "{% set t = messages[1].content.upper() + '!' %}{{ t }}",
    "{% for m in messages %}{{ loop.index + 0 }}{{ loop.last }}{{ loop.cycle('p', 'q') }}{{ loop.length }}{% endfor %}",
    "{% for m in messages %}{{ loop.previtem is defined }}{{ loop.nothing is defined }}{% endfor %}",
    "{% generation %}{{ 'a' + 'b' }}{% endgeneration %}",
]


class JinjasOwn(ChatTemplateEnvironment):
    """The same sandbox, compiled and asked the long way."""

    code_generator_class = CodeGenerator

    def getattr(self, obj: Any, attribute: str) -> Any:
        return ImmutableSandboxedEnvironment.getattr(self, obj, attribute)


def compiled(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}, ChatLimits(), now=lambda: None)  # type: ignore[arg-type, return-value]


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[ChatTemplate, ChatTemplate]]:
    def make(source: str) -> tuple[ChatTemplate, ChatTemplate]:
        ours = compiled(source)
        with monkeypatch.context() as patch:
            patch.setattr(module, "ChatTemplateEnvironment", JinjasOwn)
            theirs = compiled(source)
        code = [each._template.environment.compile(source, raw=True) for each in (ours, theirs)]
        assert code[0] != code[1] or "+" not in source
        return ours, theirs

    return make


def said(template: ChatTemplate, messages: list[dict[str, Any]], tools: Any, opens: bool) -> object:
    try:
        clock = template.clock()
        return template.render(messages, tools, add_generation_prompt=opens, extra={}, clock=clock)
    except TemplateError as error:
        return type(error), str(error)


@pytest.mark.parametrize("source", [file.read_text() for file in DATA], ids=[file.stem for file in DATA])
def test_chat_templates_say_the_same(source: str, both: Callable[..., Any]) -> None:
    ours, theirs = both(source.replace("strftime_now", "raise_exception"))
    rng, rendered = random.Random(1), 0
    for _ in range(150):
        messages = [rng.choice(MESSAGES) for _ in range(rng.randint(1, 5))]
        given = messages, rng.choice([None, TOOLS]), rng.random() < 0.5
        assert said(ours, *given) == said(theirs, *given)
        rendered += isinstance(said(ours, *given), str)
    assert rendered or "raise_exception" in source or "strftime_now" in source


@pytest.mark.parametrize("source", PARTS)
def test_sums_and_fields_are_what_jinja_makes_of_them(source: str, both: Callable[..., Any]) -> None:
    ours, theirs = both(source)
    assert said(ours, MESSAGES[:2], None, True) == said(theirs, MESSAGES[:2], None, True)


@pytest.mark.parametrize("name", ["__class__", "__init__", "clear", "update"])
def test_fields_and_loops_are_no_way_out(name: str) -> None:
    for source in (
        f"{{{{ messages[0].{name} }}}}",
        f"{{% for m in messages %}}{{{{ loop.{name} }}}}{{% endfor %}}",
    ):
        found = said(compiled(source), MESSAGES[:2], None, True)
        assert found == "" or "unsafe" in str(found)


def test_a_sum_is_bounded_before_it_is_built() -> None:
    template = ChatTemplate("{{ m + m + m }}", {"m": "x" * 400}, ChatLimits(characters=1000))
    assert "more than 1000 characters" in str(said(template, MESSAGES[:1], None, True))
