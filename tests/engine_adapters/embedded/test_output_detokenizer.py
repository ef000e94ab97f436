"""Streamed text equals the tokenizer's own decoding, and no character is ever split."""

from functools import lru_cache
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine_adapters.embedded.output.detokenizer import IncrementalDetokenizer, TokenTexts

TEXTS = [
    "Hello, world! It's 12:30.",
    "日本語のテキスト、中文字符。",
    "👩‍👩‍👧 family 🏳️‍🌈 flags 🇩🇪",
    "e\u0301 combining, n\u0303, Zalgo h\u0336i\u0336",
    "\n\n  indented\tcode\r\n",
    "mañana café naïve",
]


@pytest.fixture(scope="module")
def smollm2_tokenizer(smollm2_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))


@lru_cache(maxsize=1)
def byte_level() -> Tokenizer:
    """Byte-level BPE without merges past ASCII words, so that every other character is several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    tokenizer.train_from_iterator(["Hello world, hello tokens"], trainer)
    tokenizer.add_tokens(["<tool_call>", "two words", "日本"])
    return tokenizer


def byte_fallback(strip: bool) -> Tokenizer:
    """What a Llama-2-like SentencePiece model converts to; `strip` as in Llama, without as in Gemma."""
    pieces = ["<unk>", "<s>", "▁", "▁Hello", "▁world", "Hello", "!", "▁▁", "n", "a", "▁a", "é"]
    vocabulary = {piece: i for i, piece in enumerate([*pieces, *(f"<0x{byte:02X}>" for byte in range(256))])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens(["<unk>", "<s>"])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    return tokenizer


def metaspace() -> Tokenizer:
    pieces = ["<unk>", "▁", "▁Hello", "▁world", "lo", "!", "▁▁", "日本"]
    tokenizer = Tokenizer(models.Unigram([(piece, 0.0) for piece in pieces], unk_id=0, byte_fallback=False))
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def word_piece() -> Tokenizer:
    pieces = ["[UNK]", "play", "##ing", "##ed", "chess", "日"]
    tokenizer = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return tokenizer


def stream(detokenizer: IncrementalDetokenizer, ids: list[int]) -> list[str]:
    return [*(detokenizer.push(i) for i in ids), detokenizer.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_characters_and_join_to_the_text(text: str) -> None:
    pieces = stream(IncrementalDetokenizer(byte_level()), byte_level().encode(text).ids)
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)
    assert pieces[-1] == "", "a whole character is never held back"


@given(ids=st.lists(st.integers(0, 310), max_size=40), skip=st.booleans(), tail=st.integers(0, 5))
def test_byte_level_joins_to_the_tokenizers_own_decoding(ids: list[int], skip: bool, tail: int) -> None:
    detokenizer = IncrementalDetokenizer(byte_level(), skip, ids[:tail])
    assert "".join(stream(detokenizer, ids)) == byte_level().decode(ids, skip_special_tokens=skip)


def test_a_real_models_tokenizer_agrees_on_every_text(smollm2_tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        ids = smollm2_tokenizer.encode(text).ids
        pieces = stream(IncrementalDetokenizer(smollm2_tokenizer), ids)
        assert "".join(pieces) == text
        assert pieces[-1] == ""


@given(st.data())
def test_a_real_models_tokenizer_agrees_on_random_ids(
    smollm2_tokenizer: Tokenizer, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, smollm2_tokenizer.get_vocab_size() + 10), max_size=30))
    detokenizer = IncrementalDetokenizer(smollm2_tokenizer)
    assert "".join(stream(detokenizer, ids)) == smollm2_tokenizer.decode(ids)


def test_broken_bytes_come_out_once_they_cannot_complete() -> None:
    ids = {byte: byte_level().token_to_id(char) for byte, char in ((0xE6, "æ"), (0x97, "Ĺ"), (0xFF, "ÿ"))}
    letter = byte_level().token_to_id("a")
    detokenizer = IncrementalDetokenizer(byte_level())
    assert detokenizer.push(ids[0xFF]) == "\ufffd", "0xFF starts no character"
    assert detokenizer.push(ids[0xE6]) == ""
    assert detokenizer.push(ids[0x97]) == ""
    assert detokenizer.push(letter) == "\ufffda"
    assert detokenizer.push(ids[0xE6]) == ""
    assert detokenizer.flush() == "\ufffd"


def test_a_replacement_character_the_model_wrote_is_not_held_back() -> None:
    ids = byte_level().encode("\ufffd").ids
    assert stream(IncrementalDetokenizer(byte_level()), ids)[-2:] == ["\ufffd", ""]


@pytest.mark.parametrize("strip", [True, False])
@given(data=st.data())
def test_byte_fallback_continues_the_prompt_as_the_whole_decodes(strip: bool, data: st.DataObject) -> None:
    tokenizer = byte_fallback(strip)
    euro = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "€".encode()]
    piece = st.one_of(st.integers(1, 11).map(lambda i: [i]), st.just(euro))
    prompt = list(chain.from_iterable(data.draw(st.lists(piece, max_size=3))))
    ids = list(chain.from_iterable(data.draw(st.lists(piece, max_size=12))))
    pieces = stream(IncrementalDetokenizer(tokenizer, prompt_tail=prompt), ids)
    whole, before = tokenizer.decode(prompt + ids), tokenizer.decode(prompt)
    assert "".join(pieces) == whole[len(before) :]


def test_byte_fallback_gives_out_broken_bytes_and_whole_characters() -> None:
    tokenizer = byte_fallback(strip=True)
    byte = {value: tokenizer.token_to_id(f"<0x{value:02X}>") for value in range(256)}
    word = tokenizer.token_to_id("▁Hello")
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert stream(detokenizer, [byte[b] for b in "日".encode()]) == ["", "", "日", ""]
    assert stream(detokenizer, [byte[0xE6], byte[0x97], word]) == ["", "", "\ufffd Hello", ""]


@pytest.mark.parametrize("tokenizer", [byte_fallback(True), metaspace()])
def test_the_first_word_keeps_its_space_only_behind_a_prompt(tokenizer: Tokenizer) -> None:
    hello, world = tokenizer.token_to_id("▁Hello"), tokenizer.token_to_id("▁world")
    start = tokenizer.token_to_id("<unk>")
    assert stream(IncrementalDetokenizer(tokenizer), [hello, world]) == ["Hello", " world", ""]
    assert stream(IncrementalDetokenizer(tokenizer, prompt_tail=[start]), [hello]) == ["Hello", ""]
    assert stream(IncrementalDetokenizer(tokenizer, prompt_tail=[start, hello]), [world]) == [" world", ""]


@given(ids=st.lists(st.integers(0, 7), max_size=12))
def test_metaspace_joins_to_the_tokenizers_own_decoding(ids: list[int]) -> None:
    tokenizer = metaspace()
    assert "".join(stream(IncrementalDetokenizer(tokenizer), ids)) == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(1, 5), max_size=30), tail=st.lists(st.integers(1, 5), max_size=12))
def test_decoders_that_need_neighbours_are_decoded_in_a_window(ids: list[int], tail: list[int]) -> None:
    tokenizer = word_piece()
    whole, before = tokenizer.decode(tail + ids), tokenizer.decode(tail)
    assert "".join(stream(IncrementalDetokenizer(tokenizer, prompt_tail=tail), ids)) == whole[len(before) :]


def test_special_tokens_are_left_out_unless_asked_for_or_kept() -> None:
    tokenizer = byte_level()
    end = tokenizer.token_to_id("<|end|>")
    assert IncrementalDetokenizer(tokenizer).push(end) == ""
    assert IncrementalDetokenizer(tokenizer, skip_special_tokens=False).push(end) == "<|end|>"
    assert IncrementalDetokenizer(tokenizer, keep=("<|end|>",)).push(end) == "<|end|>"
    assert IncrementalDetokenizer(tokenizer, keep=("<tool_call>",)).push(end) == ""


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback(True), metaspace(), word_piece()])
@pytest.mark.parametrize("token_id", [-1, 10_000, 2**32, 2**40])
def test_ids_outside_the_vocabulary_are_no_text(tokenizer: Tokenizer, token_id: int) -> None:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt_tail=[token_id])
    assert stream(detokenizer, [token_id]) == ["", ""]
    assert TokenTexts(tokenizer).raw(token_id) == b""
    assert TokenTexts(tokenizer).text(token_id) == ""


def test_every_byte_level_token_shows_its_own_bytes() -> None:
    tokenizer = byte_level()
    texts = TokenTexts(tokenizer)
    ids = tokenizer.encode("naïve 日 <tool_call>").ids
    assert b"".join(texts.raw(i) for i in ids) == "naïve 日 <tool_call>".encode()
    assert texts.text(tokenizer.token_to_id("<|end|>")) == "<|end|>", "control tokens show in logprobs"
    assert texts.raw(tokenizer.token_to_id("æ")) == b"\xe6"
    assert texts.text(tokenizer.token_to_id("æ")) == "\ufffd"


def test_byte_tokens_show_their_byte_and_words_their_space() -> None:
    tokenizer = byte_fallback(strip=True)
    texts = TokenTexts(tokenizer)
    assert texts.raw(tokenizer.token_to_id("<0xE6>")) == b"\xe6"
    assert texts.raw(tokenizer.token_to_id("▁Hello")) == b" Hello"
