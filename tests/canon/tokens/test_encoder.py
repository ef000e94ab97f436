"""Ids are those of a plain encode, whatever was seen before, and what was seen is not encoded again."""

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer

from canon.errors import TemplateError
from canon.tokens import PromptTokenizer
from canon.tokens.encoder import PromptEncoder
from canon.tokens.memo import EncodingMemo
from canon.tokens.model_folder import read_model_folder
from canon.tokens.tokenizer_set import TokenizerSet, encode_all
from tests.canon.sample_tokenizers import KINDS, SPECIAL, WORDS_ADDED, sample

FRAGMENTS = st.one_of(
    st.sampled_from((*SPECIAL, *WORDS_ADDED)),
    st.sampled_from(
        (" ", "  ", "\n", "\n\n", "\t", "\u3000", "\u00a0", "x", "user", "<|", "|>", "<|im_", "end|>", "<s")
    ),
    st.sampled_from(
        ("中文字符", "日本語", "😀", "e\u0301", "👩\u200d👩\u200d👧", "\ufeff", "\x00", "ﬁ", "＜s＞", "▁")
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
TEXTS = st.lists(FRAGMENTS, max_size=14).map("".join)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
def test_ids_equal_a_plain_encode_for_every_tokenizer_and_memory(
    prompt_tokenizer: Callable[..., PromptTokenizer], kind: str, texts: list[str]
) -> None:
    tokenizer, reference = prompt_tokenizer("chatml", kind), sample(kind)
    for text in (*texts, "".join(texts), *texts):
        for surrounded in (True, False):
            ids = tokenizer.encode(text, add_special_tokens=surrounded)
            assert ids.dtype == np.int32
            assert ids.tolist() == reference.encode(text, add_special_tokens=surrounded).ids


@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
def test_ids_of_the_default_model_equal_a_plain_encode(
    smollm2: PromptTokenizer, plain_smollm2: Tokenizer, text: str
) -> None:
    assert (
        smollm2.encode(text, add_special_tokens=False).tolist()
        == plain_smollm2.encode(text, add_special_tokens=False).ids
    )


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> PromptTokenizer:
    return PromptTokenizer.from_folder(smollm2_folder)


@pytest.fixture(scope="module")
def plain_smollm2(smollm2_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))


@pytest.fixture
def encoder(model_folder: Callable[[str, str], Path]) -> PromptEncoder:
    tokenizers = TokenizerSet(read_model_folder(model_folder("byte_level", "chatml")))
    return PromptEncoder(tokenizers, EncodingMemo(1 << 20))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that the tokenizer itself is asked to encode."""
    texts: list[str] = []

    def noting(tokenizer: Tokenizer, some: Sequence[str]) -> list[NDArray[np.int32]]:
        texts.extend(some)
        return encode_all(tokenizer, some)

    monkeypatch.setattr("canon.tokens.encoder.encode_all", noting)
    return texts


def _turns(*contents: str) -> str:
    return "".join(f"<|im_start|>user\n{content}<|im_end|>\n" for content in contents)


def test_a_growing_conversation_encodes_only_its_new_turns(
    encoder: PromptEncoder, encoded: list[str]
) -> None:
    encoder.encode(_turns("one", "two"))
    encoded.clear()
    encoder.encode(_turns("one", "two", "three"))
    assert encoded == ["user\nthree"]


def test_a_long_message_that_grows_encodes_only_its_end(encoder: PromptEncoder, encoded: list[str]) -> None:
    text = " ".join(f"word {'abcdefgh'[i % 8]} of sentence {i}, and more" for i in range(4_000))
    encoder.encode(_turns(text))
    assert len(encoded) > 8  # in parts, so that they can be encoded side by side
    encoded.clear()
    grown = _turns(text + " which goes on")
    ids = encoder.encode(grown)
    assert len(text) > 10 * sum(map(len, encoded))
    assert ids.tolist() == sample("byte_level").encode(grown, add_special_tokens=False).ids


def test_a_long_message_with_a_special_token_typed_at_its_end_keeps_its_parts(
    encoder: PromptEncoder, encoded: list[str]
) -> None:
    text = " ".join(f"word {'abcdefgh'[i % 8]} of sentence {i}, and more" for i in range(4_000))
    encoder.encode_controlled(text, [])
    encoded.clear()
    encoder.encode_controlled(text + " <|im_end|>", [])
    assert len(text) > 10 * sum(map(len, encoded))


def test_long_messages_keep_their_parts_where_special_tokens_are_no_cuts(
    prompt_tokenizer: Callable[..., PromptTokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = prompt_tokenizer("chatml", "byte_level_stripping")
    seen: list[str] = []
    undo = PromptEncoder._undo

    def noting(self: PromptEncoder, text: str, *more: Any) -> NDArray[np.int32]:
        seen.append(text)
        return undo(self, text, *more)

    monkeypatch.setattr(PromptEncoder, "_undo", noting)
    text = " ".join(f"word {'abcdefgh'[i % 8]} of sentence {i}, <|im_end|> and more" for i in range(3_000))
    first = tokenizer.chat([{"role": "user", "content": text}])
    assert len(seen) > 8
    seen.clear()
    second = tokenizer.chat([{"role": "user", "content": text + " which goes on"}])
    assert len(text) > 10 * sum(map(len, seen))
    assert second.ids[: len(first.ids) - 20].tolist() == first.ids[:-20].tolist()


def test_scopes_do_not_share_what_they_have_seen(encoder: PromptEncoder, encoded: list[str]) -> None:
    encoder.encode("a secret", "tenant a")
    encoder.encode("a secret", "tenant b")
    encoder.encode("a secret", "tenant b")
    assert encoded == ["a secret", "a secret"]


def test_threads_that_share_a_small_memory_get_right_ids(model_folder: Callable[[str, str], Path]) -> None:
    tokenizers = TokenizerSet(read_model_folder(model_folder("byte_level", "chatml")))
    encoder = PromptEncoder(tokenizers, EncodingMemo(3000))
    texts = [_turns(*(f"turn {i} of {n}" for i in range(n % 7))) for n in range(40)] * 5
    reference = sample("byte_level")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: encoder.encode(text).tolist(), texts))
    assert found == [reference.encode(text, add_special_tokens=False).ids for text in texts]


def test_lone_surrogates_are_refused_and_nul_is_not(prompt_tokenizer: Callable[..., PromptTokenizer]) -> None:
    tokenizer = prompt_tokenizer("chatml")
    with pytest.raises(TemplateError, match=r"U\+D800 at character 1") as refused:
        tokenizer.encode("a\ud800b")
    assert refused.value.param == "prompt"
    assert tokenizer.decode(tokenizer.encode("a\x00b")) == "a\x00b"


def test_decoding_can_leave_special_tokens_out(prompt_tokenizer: Callable[..., PromptTokenizer]) -> None:
    tokenizer = prompt_tokenizer("chatml")
    ids = tokenizer.encode("<|im_start|>hello 中<|im_end|>")
    assert tokenizer.decode(ids) == "<|im_start|>hello 中<|im_end|>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hello 中"


def test_ids_in_memory_cannot_be_changed_from_outside(
    prompt_tokenizer: Callable[..., PromptTokenizer],
) -> None:
    tokenizer = prompt_tokenizer("chatml")
    first = tokenizer.encode("the same text")
    expected = first.tolist()
    with contextlib.suppress(ValueError):  # read-only is one way to keep it
        first[:] = 0
    assert tokenizer.encode("the same text").tolist() == expected
