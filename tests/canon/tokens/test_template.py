"""Templates render as Transformers renders them, and none of them can hang or blow up the server."""

import itertools
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canon.errors import ModelFolderError, TemplateError
from canon.tokens import ChatLimits, PromptTokenizer
from canon.tokens.template import ChatTemplate
from tests.canon.sample_tokenizers import sample, template, write_folder

LIMITS = ChatLimits(characters=100_000, seconds=10.0)
USER = [{"role": "user", "content": "hello"}]


def render(source: str, messages: Sequence[dict[str, Any]] = USER, **extra: Any) -> str:
    made = ChatTemplate(source, {"bos_token": "<s>"}, LIMITS, now=lambda: datetime(2026, 3, 4, 5, 6))
    return made.render(messages, None, add_generation_prompt=True, extra=extra, clock=made.clock())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}\n  {% if m %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}", "user\n"),
        ("{{ bos_token }}{{ add_generation_prompt }}", "<s>True"),
        ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=True, indent=1) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ ['é'] | tojson(ensure_ascii=True, separators=(',', ':')) }}", '["\\u00e9"]'),
        ("{{ strftime_now('%d %b %Y %H:%M') }}", "04 Mar 2026 05:06"),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
            "{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        ("a{% generation %}b{{ messages[0].content }}{% endgeneration %}c", "abhelloc"),
        (
            "{% set ns = namespace(n=0, s='') %}{% for m in 'abc' %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "3",
        ),
        ("{{ dict(a=1).a }}{{ dict.fromkeys('ab', 2).b }}", "12"),
        ("{{ 'a' ~ 1 ~ none ~ missing }}", "a1None"),
        ("{{ documents is none }}{{ tools is none }}", "TrueTrue"),
        ("{% macro m(x) %}[{{ x }}{{ caller() }}]{% endmacro %}{% call m('y') %}z{% endcall %}", "[yz]"),
        (
            "{{ ['a', 'b'] | join(', ') }}{{ 'a\nb' | indent(2) }}{{ 'x' | center(3) }}{{ '%s!' | format('y') }}",
            "a, ba\n  b x y!",
        ),
    ],
)
def test_what_templates_rely_on_is_there(source: str, expected: str) -> None:
    assert render(source) == expected


def test_a_template_s_own_refusal_is_the_message() -> None:
    with pytest.raises(TemplateError, match="System role not supported") as refused:
        render("{{ raise_exception('System role not supported') }}")
    assert refused.value.param == "messages"


def test_a_failing_template_is_a_refusal() -> None:
    for source in (
        "{{ messages[0].missing.deeper }}",
        "{{ 1 / 0 }}",
        "{{ messages + 1 }}",
        "{{ 'x' | int + 'y' }}",
    ):
        with pytest.raises(TemplateError):
            render(source)


def test_a_template_that_does_not_compile_is_the_folder_s_fault() -> None:
    for source in ("{% for %}", "{{ 'x' | no_such_filter }}", "{% include %}"):
        with pytest.raises(ModelFolderError):
            ChatTemplate(source, {}, LIMITS)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ namespace(_x=1) }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_template_reaches_nothing_outside(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10000000000 }}",
        "{{ 9 ** 999999999 }}",
        "{% set ns = namespace(x='xy') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='xy') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=9) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ 'x'.center(width) }}",
        "{{ 'x' | center(10000000000) }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' % (10000000000, 1) }}",
        "{{ '{:>10000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 10000000000) }}",
        "{{ ('a' * 50000).replace('a', 'b' * 50000) }}",
        "{{ ('b' * 50000).join('a' * 50000) }}",
        "{{ ['b' * 50000] * 50000 }}",
        "{{ (['b' * 50000] * 50000) | join }}",
        "{{ ('a' * 50000) | replace('a', 'b' * 50000) }}",
        "{{ '\n' * 50000 | indent(50000) }}",
        "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ range(10000000000) }}",
    ],
)
def test_a_template_cannot_build_what_does_not_fit(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source, width=10**10)


@pytest.mark.parametrize(
    "source",
    [
        "{% set r = range(99999) %}" + 3 * "{% for i in r %}" + 3 * "{% endfor %}",
        "{% set c = messages[0].content %}" + 3 * "{% for i in c %}" + 3 * "{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% set r = range(100000) %}{% for i in r recursive %}{{ loop(r) }}{% endfor %}",
    ],
)
def test_a_template_that_does_not_end_is_stopped(source: str) -> None:
    ticks = itertools.count()  # a clock that a hundred looks take past the deadline
    made = ChatTemplate(source, {}, ChatLimits(seconds=100.0), monotonic=lambda: float(next(ticks)))
    long = [{"role": "user", "content": "x" * 100_000}]
    with pytest.raises(TemplateError):
        made.render(long, None, add_generation_prompt=True, extra={}, clock=made.clock())


# ---- the same as Transformers -------------------------------------------------------------------------------------

WORDS = st.text(st.characters(exclude_categories=["Cs", "Co"], exclude_characters="<>[]|"), max_size=12)
CONTENT = st.lists(
    st.one_of(
        WORDS, st.sampled_from((" ", "\n", "<think>\nhm\n</think>\n\n", "a < b", "{{ x }}", "中文 😀"))
    ),
    max_size=5,
)
TURNS = st.lists(st.tuples(CONTENT.map("".join), CONTENT.map("".join)), min_size=1, max_size=4)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Finds <things> & more, “quoted”.",
            "parameters": {
                "type": "object",
                "properties": {"zip": {"type": "string"}, "at": {"type": "integer"}},
            },
        },
    }
]


def reference(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize(
    "name", ["chatml", "hermes", "thinking", "dated", "alternating", "concatenated", "itemized", "assembled"]
)
@settings(max_examples=40, deadline=None)
@given(turns=TURNS, with_tools=st.booleans(), generate=st.booleans())
def test_chats_come_out_as_from_transformers(
    model_folder: Callable[[str, str], Path],
    prompt_tokenizer: Callable[..., PromptTokenizer],
    name: str,
    turns: list[tuple[str, str]],
    with_tools: bool,
    generate: bool,
) -> None:
    ours, theirs = prompt_tokenizer(name), references(model_folder("byte_level", name))
    messages = [
        m for q, a in turns for m in ({"role": "user", "content": q}, {"role": "assistant", "content": a})
    ]
    tools = TOOLS if with_tools and ours.accepts_tools else None
    prompt = ours.chat(messages[:-1], tools, add_generation_prompt=generate)
    expected = theirs.apply_chat_template(
        messages[:-1], tools=tools, add_generation_prompt=generate, tokenize=False
    )
    assert prompt.text == expected
    assert (
        prompt.ids.tolist()
        == theirs.apply_chat_template(messages[:-1], tools=tools, add_generation_prompt=generate)["input_ids"]
    )


_references: dict[Path, Any] = {}


def references(folder: Path) -> Any:
    if folder not in _references:
        _references[folder] = reference(folder)
    return _references[folder]


def test_tool_calls_come_out_as_from_transformers(
    model_folder: Callable[[str, str], Path], prompt_tokenizer: Callable[..., PromptTokenizer]
) -> None:
    call = {
        "id": "call_0001",
        "type": "function",
        "function": {"name": "look_up", "arguments": {"zip": "é", "at": 3}},
    }
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0001", "content": "found"},
    ]
    for name in ("hermes", "thinking", "dated", "itemized"):
        expected = references(model_folder("byte_level", name)).apply_chat_template(
            messages, tools=TOOLS, add_generation_prompt=True, tokenize=False
        )
        assert prompt_tokenizer(name).chat(messages, TOOLS).text == expected


@pytest.mark.parametrize("name", ["chatml", "hermes", "thinking", "dated", "alternating"])
@pytest.mark.parametrize(
    "start", ["The answer", "Trailing blanks  \n", " leading", "<think>\nWell", "x <|im_end|> y"]
)
def test_continuing_a_message_ends_as_in_transformers(
    model_folder: Callable[[str, str], Path],
    prompt_tokenizer: Callable[..., PromptTokenizer],
    name: str,
    start: str,
) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": start}]
    ours = prompt_tokenizer(name).chat(messages, add_generation_prompt=False, continue_final_message=True)
    theirs = references(model_folder("byte_level", name)).apply_chat_template(
        messages, continue_final_message=True, tokenize=False
    )
    assert ours.text == theirs


def test_template_variables_of_a_request_reach_the_template(
    model_folder: Callable[[str, str], Path], prompt_tokenizer: Callable[..., PromptTokenizer]
) -> None:
    ours = prompt_tokenizer("thinking").chat(USER, template_kwargs={"enable_thinking": False})
    theirs = references(model_folder("byte_level", "thinking")).apply_chat_template(
        USER, add_generation_prompt=True, tokenize=False, enable_thinking=False
    )
    assert ours.text == theirs


def test_named_templates_are_chosen_as_in_transformers(tmp_path: Path) -> None:
    listed = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "with {{ tools | length }}"},
    ]
    folder = _with_config(tmp_path / "config", listed)
    ours, theirs = PromptTokenizer.from_folder(folder), reference(folder)
    for tools in (None, TOOLS):
        assert ours.chat(USER, tools).text == theirs.apply_chat_template(USER, tools=tools, tokenize=False)
    assert PromptTokenizer.from_folder(folder, chat_template="tool_use").chat(USER, TOOLS).text == "with 1"


def _with_config(folder: Path, chat_template: Any) -> Path:
    write_folder(folder, sample("byte_level"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": chat_template}))
    return folder


def test_template_files_come_before_the_configuration(tmp_path: Path) -> None:
    folder = _with_config(tmp_path, "from the configuration")
    assert PromptTokenizer.from_folder(folder).chat(USER).text == "from the configuration"
    (folder / "chat_template.jinja").write_text("from the file\n{{ bos_token }}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("for {{ tools | length }}")
    ours, theirs = PromptTokenizer.from_folder(folder), reference(folder)
    for tools in (None, TOOLS):
        assert ours.chat(USER, tools).text == theirs.apply_chat_template(USER, tools=tools, tokenize=False)


def test_special_tokens_by_name_are_transformers_own(tmp_path: Path) -> None:
    source = (
        "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ image_token }}|{{ unk_token }}|{{ own_token }}"
    )
    folder = write_folder(
        tmp_path,
        sample("byte_level"),
        source,
        bos_token={"__type": "AddedToken", "content": "<|im_start|>", "lstrip": False, "special": True},
        image_token="<|image|>",
        extra_special_tokens={"own_token": "[INST]"},
    )
    assert PromptTokenizer.from_folder(folder).chat(USER).text == reference(folder).apply_chat_template(
        USER, tokenize=False
    )


def test_tokens_that_only_the_configuration_has_are_added_as_transformers_adds_them(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path,
        sample("byte_level"),
        template("chatml"),
        pad_token="<|pad|>",
        additional_special_tokens=["<|more|>"],
    )
    text = "a<|pad|>b<|more|>c"
    assert PromptTokenizer.from_folder(folder).encode(text).tolist() == reference(folder).encode(text)


def test_a_folder_without_a_template_takes_no_chats(tmp_path: Path) -> None:
    tokenizer = PromptTokenizer.from_folder(write_folder(tmp_path, sample("byte_level")))
    assert not tokenizer.has_chat_template
    assert tokenizer.encode("text").size
    with pytest.raises(TemplateError, match="no chat template"):
        tokenizer.chat(USER)


def test_a_damaged_folder_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json is missing"):
        PromptTokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    with pytest.raises(ModelFolderError, match="cannot be used"):
        PromptTokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ModelFolderError, match="not a JSON object"):
        PromptTokenizer.from_folder(tmp_path)
