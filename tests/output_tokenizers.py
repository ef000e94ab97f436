"""Small tokenizers for the tests of the output pipeline."""

from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END = "<|im_end|>"


def byte_tokenizer(tags: Iterable[str] = (), special: bool = False) -> Tokenizer:
    """Byte-level BPE without a merge: one token a byte, one for the end, and one for each tag."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.add_tokens([AddedToken(tag, special=special) for tag in tags])
    return tokenizer
