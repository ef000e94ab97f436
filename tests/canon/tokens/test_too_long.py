"""A prompt that is too long is refused before all of it is encoded, and none that fits ever is."""

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from canon.errors import PromptTooLongError, TemplateError
from canon.tokens import PromptTokenizer, encoder
from canon.tokens.encoder import PromptEncoder
from canon.tokens.memo import EncodingMemo
from canon.tokens.model_folder import read_model_folder
from canon.tokens.seams.chunks import ChunkSizes
from canon.tokens.token_bytes import FewestTokens
from canon.tokens.tokenizer_set import TokenizerSet
from tests.canon.sample_tokenizers import KINDS
from tests.canon.tokens.test_encoder import TEXTS

SMALL = ChunkSizes(whole=40, least=10, most=40)
PROSE = "Whoever reads this, in a minute or in a year, will find line {} of it. \n"


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> PromptTokenizer:
    return PromptTokenizer.from_folder(smollm2_folder)


@lru_cache
def tokenizers_in(folder: Path) -> TokenizerSet:
    return TokenizerSet(read_model_folder(folder))


def bounded(encode: Callable[[int | None], NDArray[np.int32]], most: int) -> tuple[list[int] | None, int]:
    """The ids, or how many there are at least."""
    try:
        found = encode(most).tolist()
    except PromptTooLongError as error:
        return None, error.least
    return found, len(found)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=6), most=st.integers(0, 40))
@example(texts=["a  b\u212a\u1fef" * 9], most=3)
def test_it_is_refused_only_where_it_has_more_and_else_it_is_the_same(
    model_folder: Callable[[str, str], Path], kind: str, texts: list[str], most: int
) -> None:
    tokenizers, text = tokenizers_in(model_folder(kind, "chatml")), "".join(texts)
    alone, again = (PromptEncoder(tokenizers, EncodingMemo(1 << 20), SMALL) for _ in range(2))
    for encode in (
        lambda it, most: it.encode(text, "", most),
        lambda it, most: it.encode_controlled(text, [], "", most),
    ):
        try:
            whole = encode(alone, None).tolist()
        except TemplateError:
            continue  # one character alone is a control token
        assert tokenizers.fewest.of(text) <= len(whole)
        for _ in range(2):  # what was remembered meanwhile changes nothing
            found, least = bounded(partial(encode, again), most)
            assert found == whole if found is not None else most < least <= len(whole)


def test_far_less_than_all_of_it_is_encoded(
    smollm2: PromptTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = 0
    encode_all = encoder.encode_all

    def counting(tokenizer: Tokenizer, texts: list[str]):
        nonlocal done
        done += sum(map(len, texts))
        return encode_all(tokenizer, texts)

    monkeypatch.setattr(encoder, "encode_all", counting)
    text = "".join(PROSE.format(number) for number in range(40_000))  # some 3 MB, within what its bytes allow
    for ask in (
        lambda: smollm2.encode(text, most=100_000),
        lambda: smollm2.chat([{"role": "user", "content": text}], most=100_000),
    ):
        done = 0
        with pytest.raises(PromptTooLongError) as raised:
            ask()
        assert raised.value.least > 100_000
        assert 0 < done < len(text) / 3
        smollm2.forget()


def test_what_its_bytes_alone_prove_is_not_encoded_at_all(
    smollm2: PromptTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "encode_all", None)
    with pytest.raises(PromptTooLongError):
        smollm2.chat([{"role": "user", "content": "x" * (14 << 20)}], most=8192)
    with pytest.raises(PromptTooLongError):
        smollm2.encode("x" * 100_000, most=1000)


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"normalizer": normalizers.NFC()}, False),  # its vocabulary lacks some bytes
        ({"normalizer": normalizers.NFKC()}, False),
        ({"normalizer": normalizers.Strip()}, False),
        ({"pre_tokenizer": pre_tokenizers.Whitespace()}, False),
        (
            {
                "pre_tokenizer": pre_tokenizers.Sequence(
                    [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()]
                )
            },
            False,
        ),
        (
            {
                "pre_tokenizer": pre_tokenizers.Sequence(
                    [pre_tokenizers.Split(" ", "isolated"), pre_tokenizers.ByteLevel()]
                )
            },
            True,
        ),
    ],
)
def test_nothing_is_known_of_tokenizers_that_may_drop_bytes(
    smollm2_folder: Path, tmp_path: Path, change: dict[str, object], known: bool
) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
    for name, value in change.items():
        setattr(tokenizer, name, value)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    fewest = TokenizerSet(read_model_folder(tmp_path)).fewest
    assert (fewest.of("x" * 10_000) > 0) == known


@pytest.mark.parametrize(("normalizer", "least"), [(None, 3), ({"type": "NFC"}, 1), ({"type": "NFKC"}, 0)])
def test_the_longest_token_bounds_how_few_there_are(normalizer: dict[str, str] | None, least: int) -> None:
    signs = ByteLevel.alphabet()
    model = {"type": "BPE", "vocab": {word: index for index, word in enumerate([*signs, "ab", "abcd"])}}
    whole = {"normalizer": normalizer, "pre_tokenizer": {"type": "ByteLevel"}, "model": model}
    assert FewestTokens(whole, {}).of("abcdabcdab") == least
    added = AddedToken("<a longer token>", special=True)
    assert FewestTokens(whole, {300: added}).of("x" * 160) == -(-least * 10 // 3)
    assert FewestTokens(whole, {300: AddedToken("x", lstrip=True)}).of("x" * 160) == 0
    lacking = {**whole, "model": {**model, "vocab": {"a": 0, "abcd": 1}}}
    assert FewestTokens(lacking, {}).of("a" * 8 + "x" * 80) == (2 if normalizer is None else 0)
