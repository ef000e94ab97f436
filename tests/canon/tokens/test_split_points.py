"""A text is cut only where its pieces are sure to give the whole's ids."""

from collections.abc import Callable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from canon.tokens.model_folder import read_model_folder
from canon.tokens.split_points import safe_tokens
from canon.tokens.tokenizer_set import TokenizerSet
from tests.canon.sample_tokenizers import SPECIAL, sample, write_folder


def _safe(folder: Path, tokenizer: Tokenizer) -> set[str]:
    return set(safe_tokens(TokenizerSet(read_model_folder(write_folder(folder, tokenizer)))))


def test_ordinary_special_tokens_are_cuts(tmp_path: Path) -> None:
    assert _safe(tmp_path, sample("byte_level")) == set(SPECIAL)


def test_added_words_that_are_not_special_are_no_cuts(tmp_path: Path) -> None:
    assert "<tool_call>" not in _safe(tmp_path, sample("byte_level"))


def test_tokens_that_take_blanks_along_are_no_cuts(tmp_path: Path) -> None:
    tokenizer = sample("byte_level")
    for flags in ({"lstrip": True}, {"rstrip": True}):
        name = f"<{next(iter(flags))}>"
        tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True, **flags)])
    assert _safe(tmp_path, tokenizer) == set(SPECIAL)


def test_tokens_looked_for_in_normalized_text_are_no_cuts(tmp_path: Path) -> None:
    assert _safe(tmp_path, sample("normalized_specials")) == set()


def test_one_whole_word_token_forbids_all_cuts(tmp_path: Path) -> None:
    tokenizer = sample("byte_level")
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=False)])
    assert _safe(tmp_path, tokenizer) == set()


def test_tokens_that_others_begin_with_contain_or_overlap_are_no_cuts(tmp_path: Path) -> None:
    found = _safe(tmp_path, sample("overlapping_specials"))
    assert not found & {"<|im_start|>", "<|im_end|>", "<s>"}


def test_blanks_that_only_a_text_s_first_piece_gets_are_known(
    model_folder: Callable[[str, str], Path],
) -> None:
    tokenizers = TokenizerSet(read_model_folder(model_folder("unigram", "chatml")))
    assert tokenizers.inner is not tokenizers.plain
    alike = TokenizerSet(read_model_folder(model_folder("unigram_always", "chatml")))
    assert alike.inner is alike.plain
