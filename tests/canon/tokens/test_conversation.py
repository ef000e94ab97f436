"""Requests in OpenAI's form reach each kind of template in the form it expects, or are refused by name."""

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from canon.errors import TemplateError
from canon.tokens import ChatLimits, PromptTokenizer
from tests.canon.sample_tokenizers import sample, template, write_folder

Load = Callable[..., PromptTokenizer]
USER = {"role": "user", "content": "hello"}
TOOL = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}},
}


def called(arguments: Any, **more: Any) -> list[dict[str, Any]]:
    call = {"id": "call_0001", "type": "function", "function": {"name": "look_up", "arguments": arguments}}
    return [
        USER,
        {"role": "assistant", "tool_calls": [call]} | more,
        {"role": "tool", "tool_call_id": "call_0001", "content": "found it"},
    ]


def refusal(tokenizer: PromptTokenizer, messages: Any, tools: Any = None, **more: Any) -> TemplateError:
    with pytest.raises(TemplateError) as refused:
        tokenizer.chat(messages, tools, **more)
    return refused.value


# ---- content ------------------------------------------------------------------------------------------------------


def test_text_parts_are_joined_by_newlines_where_the_template_takes_strings(prompt_tokenizer: Load) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    tokenizer = prompt_tokenizer("chatml")
    assert (
        tokenizer.chat([{"role": "user", "content": parts}]).text
        == tokenizer.chat([{"role": "user", "content": "one\ntwo"}]).text
    )


def test_strings_become_parts_where_the_template_takes_only_parts(prompt_tokenizer: Load) -> None:
    assert prompt_tokenizer("parts").chat([USER]).text.startswith("<|im_start|>user\nhello<|im_end|>")


@pytest.mark.parametrize("form", ["chatml", "parts"])
@pytest.mark.parametrize("role", ["system", "user", "developer", "poet"])
@pytest.mark.parametrize("content", ["hello", "héllo <|im_end|>", "\ud800", "x" * 1985, "x" * 1986, None])
def test_a_plain_message_is_taken_as_any_other_object_with_the_same_in_it_is(
    tmp_path: Path, form: str, role: str, content: str | None
) -> None:
    folder = write_folder(tmp_path, sample("byte_level"), template(form))
    tokenizer = PromptTokenizer.from_folder(folder, limits=ChatLimits(characters=2000))

    def outcome(message: Mapping[str, Any]) -> tuple[str, str | None]:
        try:
            return tokenizer.chat([message]).text, None
        except TemplateError as error:
            return str(error), error.param

    plain = {"role": role, "content": content}
    assert outcome(plain) == outcome(MappingProxyType(plain))


def test_an_image_goes_to_a_template_that_sees(prompt_tokenizer: Load) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    prompt = prompt_tokenizer("parts").chat(
        [{"role": "user", "content": [image, {"type": "text", "text": "what?"}]}]
    )
    assert "<|image|>what?" in prompt.text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("chatml", "image_url"),
        ("thinking", "image_url"),
        ("thinking", "file"),
        ("parts", "input_audio"),  # it sees, but does not hear
        ("parts", "no_such_kind"),
    ],
)
def test_a_part_that_the_template_cannot_take_is_named(prompt_tokenizer: Load, name: str, kind: str) -> None:
    content = [{"type": "text", "text": "see"}, {"type": kind, kind: {}}]
    error = refusal(
        prompt_tokenizer(name),
        [USER, {"role": "assistant", "content": "a"}, {"role": "user", "content": content}],
    )
    assert error.param == "messages[2].content[1]"
    assert kind in error.message


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": 3, "content": "x"}], "messages[0].role"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        ([{"role": "user", "content": {"text": "x"}}], "messages[0].content"),
        ([{"role": "user", "content": [3]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": "a\udc00"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": "\ud83d"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": "x", "name": object()}], "messages[0].name"),
        ([USER, {"role": "assistant", "tool_calls": "x"}], "messages[1].tool_calls"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "x"}]}], "messages[1].tool_calls[0]"),
    ],
)
def test_what_no_template_can_take_is_named(prompt_tokenizer: Load, messages: Any, param: str) -> None:
    assert refusal(prompt_tokenizer("hermes"), messages).param == param


def test_sizes_are_bounded(tmp_path: Path) -> None:
    limits = ChatLimits(messages=5, characters=2000, depth=10)
    tokenizer = PromptTokenizer.from_folder(
        write_folder(tmp_path, sample("byte_level"), template("chatml")), limits=limits
    )
    assert refusal(tokenizer, [USER] * 6).param == "messages"
    assert refusal(tokenizer, [USER, {"role": "user", "content": "x" * 2001}]).param == "messages[1].content"
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert "levels deep" in refusal(tokenizer, [{"role": "user", "content": "x", "extra": deep}]).message
    with pytest.raises(TemplateError):
        tokenizer.encode("x" * 2001)


# ---- roles --------------------------------------------------------------------------------------------------------


def test_a_developer_speaks_as_the_system_where_the_template_has_no_developer(prompt_tokenizer: Load) -> None:
    tokenizer = prompt_tokenizer("hermes")
    texts = [
        tokenizer.chat([{"role": role, "content": "be brief"}, USER]).text for role in ("developer", "system")
    ]
    assert texts[0] == texts[1]


def test_a_developer_stays_one_where_the_template_knows_it(tmp_path: Path) -> None:
    source = "{% for m in messages %}{% if m.role == 'developer' %}D:{% endif %}{{ m.content }}{% endfor %}"
    tokenizer = PromptTokenizer.from_folder(write_folder(tmp_path, sample("byte_level"), source))
    assert tokenizer.chat([{"role": "developer", "content": "x"}]).text == "D:x"


def test_a_message_that_the_template_leaves_out_is_refused(prompt_tokenizer: Load) -> None:
    tokenizer = prompt_tokenizer("concatenated")
    for role in ("system", "function", "developer"):
        error = refusal(tokenizer, [{"role": role, "content": "important"}, USER])
        assert error.param == "messages[0].role"
        assert role in error.message


def test_a_dropped_message_is_found_even_if_another_says_the_same_start(prompt_tokenizer: Load) -> None:
    messages = [{"role": "system", "content": "hello there"}, {"role": "user", "content": "hello"}]
    assert refusal(prompt_tokenizer("concatenated"), messages).param == "messages[0].role"


@pytest.mark.parametrize("name", ["chatml", "hermes", "thinking", "dated", "itemized"])
def test_messages_that_are_there_raise_no_alarm(prompt_tokenizer: Load, name: str) -> None:
    system = {"role": "system", "content": ' {"rules": ["<b>",\n "\\"quoted\\""]}  '}
    thought = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nhello"}
    empty = {"role": "system", "content": ""}
    tokenizer = prompt_tokenizer(name)
    for messages in ([system, USER], [USER, thought, USER], [empty, USER], [system, USER, thought, USER]):
        assert tokenizer.chat(messages).ids.size
    if tokenizer.accepts_tools:
        assert tokenizer.chat([system, *called("{}")], [TOOL]).ids.size


# ---- tools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chatml", "alternating", "assembled", "parts"])
def test_tools_are_refused_where_the_template_takes_none(prompt_tokenizer: Load, name: str) -> None:
    tokenizer = prompt_tokenizer(name)
    assert not tokenizer.accepts_tools
    assert refusal(tokenizer, [USER], [TOOL]).param == "tools"
    assert tokenizer.chat([USER], []).text == tokenizer.chat([USER]).text


def test_tool_calls_are_refused_where_the_template_takes_none(prompt_tokenizer: Load) -> None:
    assert refusal(prompt_tokenizer("chatml"), called("{}")).param == "messages[1].tool_calls"


@pytest.mark.parametrize(
    ("name", "rendered"),
    [
        ("hermes", '"arguments": {"city": "Köln", "n": 3}'),
        ("dated", '"parameters": {"city": "Köln", "n": 3}'),
        (
            "thinking",
            '"arguments": {"city":"K\\u00f6ln","n":3}',
        ),  # as the client, that is the model, wrote it
        ("concatenated", '```json\n{"city":"K\\u00f6ln","n":3}\n```'),
        ("itemized", "<parameter=city>Köln</parameter>\n<parameter=n>3</parameter>"),
    ],
)
def test_argument_text_reaches_each_template_in_its_form(
    prompt_tokenizer: Load, name: str, rendered: str
) -> None:
    assert rendered in prompt_tokenizer(name).chat(called('{"city":"K\\u00f6ln","n":3}')).text


@pytest.mark.parametrize(
    "number", ["1E2", "1.50", "-0", "-0.0", "1e400", "123456789012345678901234567890", "0.1e-7", "3.0"]
)
@pytest.mark.parametrize("name", ["hermes", "itemized", "dated"])
def test_numbers_in_arguments_are_written_as_they_came(
    prompt_tokenizer: Load, name: str, number: str
) -> None:
    text = prompt_tokenizer(name).chat(called(f'{{"n": {number}, "s": "1E2"}}')).text
    assert f'"n": {number}, "s": "1E2"' in text or f"<parameter=n>{number}</parameter>" in text


@pytest.mark.parametrize(
    "arguments", ["not json", "[1, 2]", '"text"', "{'single': 1}", '{"a": NaN}', "{" * 5000]
)
def test_argument_text_that_is_no_object_stays_text(prompt_tokenizer: Load, arguments: str) -> None:
    assert json.dumps(arguments) in prompt_tokenizer("hermes").chat(called(arguments)).text


@pytest.mark.parametrize("arguments", ["", None])
@pytest.mark.parametrize("name", ["hermes", "thinking", "itemized", "concatenated"])
def test_missing_arguments_are_an_empty_object(
    prompt_tokenizer: Load, name: str, arguments: str | None
) -> None:
    tokenizer = prompt_tokenizer(name)
    assert tokenizer.chat(called(arguments)).text == tokenizer.chat(called("{}")).text


def test_an_assistant_that_only_calls_needs_no_content(tmp_path: Path) -> None:
    source = (
        "{% for m in messages %}{{ m.role + ':' + m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %};{% endfor %}"
    )
    tokenizer = PromptTokenizer.from_folder(write_folder(tmp_path, sample("byte_level"), source))
    assert tokenizer.chat(called("{}")).text == "user:hello;assistant:look_up;tool:found it;"
    assert tokenizer.chat(called("{}", content=None)).text == tokenizer.chat(called("{}")).text


def test_a_template_that_refuses_says_why(prompt_tokenizer: Load) -> None:
    error = refusal(prompt_tokenizer("alternating"), [USER, USER])
    assert "must alternate" in error.message
    assert error.param == "messages"


# ---- thinking -----------------------------------------------------------------------------------------------------


def test_a_prompt_that_opens_a_thought_starts_in_reasoning(prompt_tokenizer: Load) -> None:
    tokenizer = prompt_tokenizer("thinking")
    assert tokenizer.thinking_tags == ("<think>", "</think>")
    assert tokenizer.chat([USER]).starts_in_reasoning
    assert not tokenizer.chat([USER], template_kwargs={"enable_thinking": False}).starts_in_reasoning
    assert not tokenizer.chat([USER], add_generation_prompt=False).starts_in_reasoning


@pytest.mark.parametrize(
    ("start", "inside"),
    [("<think>\nWell", True), ("<think>a</think>b", False), ("b", False), ("<think>", True)],
)
def test_a_continued_thought_is_reasoning_until_it_is_closed(
    prompt_tokenizer: Load, start: str, inside: bool
) -> None:
    prompt = prompt_tokenizer("chatml").chat(
        [USER, {"role": "assistant", "content": start}],
        add_generation_prompt=False,
        continue_final_message=True,
    )
    assert prompt.starts_in_reasoning is inside


def test_a_user_s_thinking_tag_is_no_reasoning(prompt_tokenizer: Load) -> None:
    assert (
        not prompt_tokenizer("chatml")
        .chat([{"role": "user", "content": "what is <think>"}])
        .starts_in_reasoning
    )


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_reaches_the_template_under_any_of_its_names(prompt_tokenizer: Load, name: str) -> None:
    messages = [USER, {"role": "assistant", "content": "four", name: "two and two"}]
    text = prompt_tokenizer("thinking").chat(messages, add_generation_prompt=False).text
    assert "<think>\ntwo and two\n</think>\n\nfour" in text


# ---- continuing ---------------------------------------------------------------------------------------------------


def test_continuing_needs_something_to_continue(prompt_tokenizer: Load) -> None:
    more = {"add_generation_prompt": False, "continue_final_message": True}
    tokenizer = prompt_tokenizer("hermes")
    assert refusal(tokenizer, [USER, {"role": "assistant"}], **more).param == "messages[1].content"
    both = refusal(tokenizer, [USER], continue_final_message=True)
    assert both.param == "continue_final_message"


def test_the_last_text_part_is_continued(prompt_tokenizer: Load) -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two "}]
    prompt = prompt_tokenizer("parts").chat(
        [{"role": "user", "content": parts}], add_generation_prompt=False, continue_final_message=True
    )
    assert prompt.text == "<|im_start|>user\none two "


def test_the_request_is_not_changed(prompt_tokenizer: Load) -> None:
    messages = [
        *called('{"n": 1E2}'),
        {"role": "assistant", "content": [{"type": "text", "text": "a"}], "reasoning": "r"},
    ]
    before = copy.deepcopy(messages)
    prompt_tokenizer("hermes").chat(messages, [TOOL])
    assert messages == before
