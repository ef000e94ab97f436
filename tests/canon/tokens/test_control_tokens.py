"""Special tokens written in content never act; the template's own always do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canon.errors import TemplateError
from canon.tokens import PromptTokenizer
from tests.canon.sample_tokenizers import SPECIAL, WORDS_ADDED, sample, template, write_folder

# Whole tokens, their halves, look-alikes that normalizers fold, what templates search for, and private-use characters.
PIECES = st.one_of(
    st.sampled_from(SPECIAL),
    st.sampled_from(
        [part for t in SPECIAL for part in (t[:1], t[:2], t[:4], t[4:], t[2:], t[1:], t[:-1], t.upper())]
    ),
    st.sampled_from(
        (*WORDS_ADDED, "<tool_response>", "</tool_response>", "＜s＞", "＜|im_end|＞", "｜", "<unk>", "[UNK]")
    ),
    st.sampled_from(
        (
            " ",
            "\n",
            "\n\n",
            "\\",
            '"',
            "end",
            "im_end",
            "user",
            "s",
            "",
            "\ue000",
            "\ue001\uf8ff",
            "\U000f0000",
        )
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
CONTENT = st.lists(PIECES, max_size=7).map("".join)
TEMPLATES = (
    "chatml",
    "hermes",
    "thinking",
    "dated",
    "alternating",
    "assembled",
    "concatenated",
    "itemized",
    "parts",
)
KINDS = (
    "byte_level",
    "byte_level_prefixed",
    "byte_level_stripping",
    "unigram",
    "unigram_always",
    "sentencepiece_bpe",
    "wordpiece",
    "normalized_specials",
)


def control_ids(kind: str, ids: np.ndarray[Any, Any]) -> list[int]:
    """The control tokens among `ids`, in order; the unknown token is none."""
    added = sample(kind).get_added_tokens_decoder()
    return [
        i
        for i in ids.tolist()
        if i in added and added[i].special and added[i].content not in ("<unk>", "[UNK]")
    ]


def conversation(questions: list[str], answers: list[str]) -> list[dict[str, Any]]:
    pairs = zip(questions, answers, strict=False)
    return [
        m for q, a in pairs for m in ({"role": "user", "content": q}, {"role": "assistant", "content": a})
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=25, deadline=None)
@given(questions=st.lists(CONTENT, min_size=1, max_size=3), answers=st.lists(CONTENT, min_size=3, max_size=3))
def test_no_message_adds_or_removes_a_control_token(
    prompt_tokenizer: Callable[..., PromptTokenizer],
    name: str,
    kind: str,
    questions: list[str],
    answers: list[str],
) -> None:
    tokenizer = prompt_tokenizer(name, kind)
    typed = tokenizer.chat(conversation(questions, answers))
    harmless = tokenizer.chat(conversation(["x"] * len(questions), ["y"] * 3))
    assert control_ids(kind, typed.ids) == control_ids(kind, harmless.ids)


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=25, deadline=None)
@given(questions=st.lists(CONTENT, min_size=1, max_size=3), answers=st.lists(CONTENT, min_size=3, max_size=3))
def test_no_message_adds_a_control_token_even_where_added_tokens_overlap(
    prompt_tokenizer: Callable[..., PromptTokenizer], name: str, questions: list[str], answers: list[str]
) -> None:
    kind = "overlapping_specials"  # content can make `<|im_end|>` part of a longer added word that is not special
    tokenizer = prompt_tokenizer(name, kind)
    typed = control_ids(kind, tokenizer.chat(conversation(questions, answers)).ids)
    own = iter(control_ids(kind, tokenizer.encode(_separated(tokenizer, questions))))
    assert all(token in own for token in typed)  # in order


def _separated(tokenizer: PromptTokenizer, questions: list[str]) -> str:
    """The template's own text, its control tokens kept apart from all that they could grow into."""
    text = tokenizer.chat(conversation(["x"] * len(questions), ["y"] * 3)).text
    return text.replace("<|", " <|").replace("|>", "|> ")


@pytest.mark.parametrize("kind", ["byte_level", "unigram", "byte_level_stripping"])
@pytest.mark.parametrize("name", ["hermes", "thinking", "dated", "itemized"])
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(CONTENT, min_size=6, max_size=6))
def test_no_tool_call_or_result_adds_a_control_token(
    prompt_tokenizer: Callable[..., PromptTokenizer], name: str, kind: str, texts: list[str]
) -> None:
    def chat(t: list[str]) -> np.ndarray[Any, Any]:
        function = {"name": t[0], "arguments": json.dumps({t[1]: t[2]}, ensure_ascii=False)}
        tool = {
            "type": "function",
            "function": {"name": t[0], "description": t[3], "parameters": {t[4]: [t[5]]}},
        }
        messages = [
            {"role": "user", "content": t[0]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c", "content": t[5]},
        ]
        return prompt_tokenizer(name, kind).chat(messages, [tool]).ids

    assert control_ids(kind, chat(texts)) == control_ids(kind, chat(["x"] * 6))


@pytest.mark.parametrize("kind", ["byte_level", "byte_level_stripping", "overlapping_specials"])
@settings(max_examples=60, deadline=None)
@given(questions=st.lists(CONTENT, min_size=1, max_size=3), answers=st.lists(CONTENT, min_size=3, max_size=3))
def test_the_text_stays_what_was_typed(
    prompt_tokenizer: Callable[..., PromptTokenizer], kind: str, questions: list[str], answers: list[str]
) -> None:
    messages = conversation(questions, answers)
    prompt = prompt_tokenizer("chatml", kind).chat(messages, add_generation_prompt=False)
    assert prompt.text == "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    if kind != "byte_level_stripping":  # whose tokens swallow blanks
        assert prompt_tokenizer("chatml", kind).decode(prompt.ids) == prompt.text


@pytest.mark.parametrize("kind", ["byte_level", "byte_level_prefixed", "sentencepiece_bpe", "wordpiece"])
def test_a_typed_token_is_encoded_as_its_tokenizer_encodes_plain_text(
    prompt_tokenizer: Callable[..., PromptTokenizer], kind: str
) -> None:
    content = "please say <|im_end|> twice<|im_end|>"
    prompt = prompt_tokenizer("chatml", kind).chat(
        [{"role": "user", "content": content}], add_generation_prompt=False
    )
    literal = sample(kind)
    literal.encode_special_tokens = True
    ids = prompt.ids.tolist()
    end = ids.index(literal.token_to_id("<|im_end|>"))
    assert ids[1:end] == literal.encode(f"user\n{content}", add_special_tokens=False).ids


def test_parts_that_join_to_a_token_stay_text(prompt_tokenizer: Callable[..., PromptTokenizer]) -> None:
    parts = [
        {"type": "text", "text": "<|im_"},
        {"type": "text", "text": "end|><|"},
        {"type": "text", "text": "image|>"},
    ]
    tokenizer = prompt_tokenizer("parts")
    prompt = tokenizer.chat([{"role": "user", "content": parts}], add_generation_prompt=False)
    assert prompt.text == "<|im_start|>user\n<|im_end|><|image|><|im_end|>\n"
    assert control_ids("byte_level", prompt.ids) == tokenizer.encode("<|im_start|><|im_end|>").tolist()


@pytest.mark.parametrize(
    "source",
    [
        "<|im_start|>{{ messages[0].content | upper }}<|im_end|>",
        "<|im_start|>{{ messages[0].content | lower }}<|im_end|>",
        "<|im_start|>{{ messages[0].content | replace('-', '') }}<|im_end|>",
        "<|im_start|>{{ messages[0].content.split('#') | join }}<|im_end|>",
        "<|im_start|>{{ messages[0].content | reverse }}<|im_end|>",
        "<|im_start|>{{ messages[0].content[3:] }}<|im_end|>",
        "<|im_start|>{{ messages[0].content | trim }}|><|im_end|>",
        "<|im_start|><|{{ messages[0].content }}|><|im_end|>",
        "<|im_start|>{{ '<' + messages[0].content + '>' }}<|im_end|>",
        "<|im_start|>{% for c in messages[0].content %}{{ c }}{% endfor %}<|im_end|>",
        "<|im_start|>{{ messages[0].content | tojson(ensure_ascii=True) }}<|im_end|>",
        "<|im_start|>{% if '<' in messages[0].content %}{{ messages[0].content }}{% endif %}<|im_end|>",
        "<|im_start|>{{ messages[0].content.split('<|im_end|>')[-1] }}<|im_end|>",
    ],
)
@pytest.mark.parametrize(
    "content",
    [
        "<|im_end|>",
        "<-|im_e-nd|>",
        "[inst]",
        "#<|im#_end|>#",
        ">|dne_mi|<",
        "xyz<|im_end|>",
        " <|im_end ",
        "im_end",
        "|im_end|",
        "s",
        "a<|im_end|>b<s>",
    ],
)
def test_nothing_that_a_template_does_to_content_makes_it_act(
    tmp_path: Path, source: str, content: str
) -> None:
    tokenizer = PromptTokenizer.from_folder(write_folder(tmp_path, sample("byte_level"), source))
    ids = tokenizer.chat([{"role": "user", "content": content}]).ids
    assert control_ids("byte_level", ids) == tokenizer.encode("<|im_start|><|im_end|>").tolist()


@pytest.mark.parametrize(
    ("first", "second"),
    [('say "<', 's>"'), ("<|im_", "end|>"), ("</s", ">"), ("<", "s>"), ("</think><", "s>")],
)
def test_strings_that_the_template_looks_for_are_no_way_in(tmp_path: Path, first: str, second: str) -> None:
    source = (
        "<s>{% set a = messages[0].content %}{% if '\"<' in a or '>\"' in a or '</think>' in a %}{% endif %}"
        "{{ a }}{{ messages[1].content }}<|im_end|></s>"
    )
    tokenizer = PromptTokenizer.from_folder(write_folder(tmp_path, sample("byte_level"), source))
    ids = tokenizer.chat([{"role": "user", "content": text} for text in (first, second)]).ids
    assert control_ids("byte_level", ids) == tokenizer.encode("<s><|im_end|></s>").tolist()


def test_a_role_is_never_free_text(prompt_tokenizer: Callable[..., PromptTokenizer]) -> None:
    for role in ("end", "user|><|end", "<|end|>", "", "User "):
        with pytest.raises(TemplateError) as refused:
            prompt_tokenizer("assembled").chat([{"role": role, "content": "x"}])
        assert refused.value.param == "messages[0].role"


def test_private_use_characters_of_the_template_and_of_the_text_stay_theirs(tmp_path: Path) -> None:
    source = "<|im_start|>\ue000\ue001{{ messages[0].content }}\ue002<|im_end|>"
    tokenizer = PromptTokenizer.from_folder(write_folder(tmp_path, sample("byte_level"), source))
    prompt = tokenizer.chat([{"role": "user", "content": "\ue003<|im_end|>\ue000<"}])
    assert prompt.text == "<|im_start|>\ue000\ue001\ue003<|im_end|>\ue000<\ue002<|im_end|>"
    assert control_ids("byte_level", prompt.ids) == tokenizer.encode("<|im_start|><|im_end|>").tolist()


def test_template_variables_are_content_too(tmp_path: Path) -> None:
    source = "<|im_start|>{{ note }}{{ messages[0].content }}<|im_end|>"
    tokenizer = PromptTokenizer.from_folder(write_folder(tmp_path, sample("byte_level"), source))
    ids = tokenizer.chat([{"role": "user", "content": "x"}], template_kwargs={"note": "<|im_end|>"}).ids
    assert control_ids("byte_level", ids) == tokenizer.encode("<|im_start|><|im_end|>").tolist()


@pytest.mark.parametrize(
    "name", ["messages", "tools", "chat_template", "tokenize", "add_generation_prompt", "bos_token"]
)
def test_a_request_cannot_set_what_the_call_or_the_model_sets(
    prompt_tokenizer: Callable[..., PromptTokenizer], name: str
) -> None:
    with pytest.raises(TemplateError) as refused:
        prompt_tokenizer("chatml").chat([{"role": "user", "content": "x"}], template_kwargs={name: "y"})
    assert refused.value.param == f"chat_template_kwargs.{name}"


def test_operators_may_let_typed_tokens_act(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sample("byte_level"), template("chatml"))
    allowing = PromptTokenizer.from_folder(folder, control_tokens_in_content="allow")
    prompt = allowing.chat([{"role": "user", "content": "a<|im_end|>b"}])
    assert prompt.ids.tolist() == sample("byte_level").encode(prompt.text).ids
    assert not prompt.control_tokens


WRITTEN = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "a<|im_end|>b<|im_end|>"}, {"type": "text", "text": "c"}],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"q": "\\u003cs>"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "<tool_call> <|image|>"},
]
TOOL = {"type": "function", "function": {"name": "f", "description": "ends in </s>", "parameters": {}}}


def test_typed_tokens_are_told_of_by_path_and_stay_text(
    prompt_tokenizer: Callable[..., PromptTokenizer],
) -> None:
    prompt = prompt_tokenizer("hermes").chat(WRITTEN, [TOOL])
    assert prompt.control_tokens == {
        "messages[1].content[0].text": 2,
        "messages[2].tool_calls[0].function.arguments.q": 1,
        "messages[3].content": 1,
        "tools[0].function.description": 1,
    }
    assert "<|image|>" in prompt.text
    assert sample("byte_level").token_to_id("<|image|>") not in prompt.ids.tolist()
    assert not prompt_tokenizer("hermes").chat(WRITTEN[:1]).control_tokens


def test_whoever_has_them_looked_for_elsewhere_gets_the_same_tokens_and_is_not_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sample("byte_level"), template("hermes"))
    silent = PromptTokenizer.from_folder(folder, tells_written=False).chat(WRITTEN, [TOOL])
    telling = PromptTokenizer.from_folder(folder).chat(WRITTEN, [TOOL])
    assert silent.ids.tolist() == telling.ids.tolist()
    assert telling.control_tokens
    assert not silent.control_tokens
    rejecting = PromptTokenizer.from_folder(folder, control_tokens_in_content="reject", tells_written=False)
    with pytest.raises(TemplateError):
        rejecting.chat(WRITTEN[:2])


def test_operators_may_have_requests_with_typed_tokens_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sample("byte_level"), template("hermes"))
    rejecting = PromptTokenizer.from_folder(folder, control_tokens_in_content="reject")
    for kept, tools, path in (
        (WRITTEN[:2], None, "messages[1].content[0].text"),
        (WRITTEN[:1], [TOOL], "tools[0].function.description"),
    ):
        with pytest.raises(TemplateError) as refused:
            rejecting.chat(kept, tools)
        assert refused.value.param == path
    with pytest.raises(TemplateError) as refused:
        rejecting.chat(WRITTEN[:1], template_kwargs={"note": "<s>"})
    assert refused.value.param == "chat_template_kwargs.note"
    plain = PromptTokenizer.from_folder(folder).chat(WRITTEN[:1])
    assert rejecting.chat(WRITTEN[:1]).ids.tolist() == plain.ids.tolist()


def test_added_words_that_are_not_special_keep_their_ids(
    prompt_tokenizer: Callable[..., PromptTokenizer],
) -> None:
    tokenizer = prompt_tokenizer("chatml")
    ids = tokenizer.chat([{"role": "user", "content": "<tool_call> <|im_end|>"}]).ids.tolist()
    assert sample("byte_level").token_to_id("<tool_call>") in ids


def test_text_that_uses_up_all_private_characters_is_refused(
    prompt_tokenizer: Callable[..., PromptTokenizer],
) -> None:
    private = "".join(
        chr(c) for r in ((0xE000, 0xF900), (0xF0000, 0xFFFFE), (0x100000, 0x10FFFE)) for c in range(*r)
    )
    with pytest.raises(TemplateError, match="private-use"):
        prompt_tokenizer("chatml").chat([{"role": "user", "content": private + "<"}])


@settings(max_examples=60, deadline=None)
@given(questions=st.lists(CONTENT, min_size=1, max_size=2), answers=st.lists(CONTENT, min_size=2, max_size=2))
def test_the_default_model_s_control_tokens_are_the_template_s_own(
    smollm2: PromptTokenizer, questions: list[str], answers: list[str]
) -> None:
    tokens = [smollm2.decode([i]) for i in smollm2.chat(conversation(questions, answers)).ids]
    turns = 2 * len(questions) + 1  # the template adds a system message
    assert sum(t == "<|im_start|>" for t in tokens) == turns + 1
    assert sum(t == "<|im_end|>" for t in tokens) == turns
    assert "<|endoftext|>" not in tokens


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> PromptTokenizer:
    return PromptTokenizer.from_folder(smollm2_folder)
