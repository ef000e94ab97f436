"""Small tokenizers of the kinds that models have, trained here, each laid out as a model's folder."""

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

DATA = Path(__file__).parent / "data"
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|image|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|tool|>",
    "<|end|>",
    "[INST]",
    "<s>",
    "</s>",
)
WORDS_ADDED = (
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
)  # added, not special, as in Qwen's tokenizers

_CORPUS = [
    "The quick brown fox jumps over the lazy dog, 12345 times <br> a|b || x > y.",
    "user assistant system model tool: im_start im_end s INST end end_of_turn image",
    "def main():\n    return {'key': [1, 2.5, None]}  # comment\n\n\tindented",
    "Größe café naïve 中文字符 日本語 のテスト Привет мир 😀🎉 ① ﬁ",
] * 20


def template(name: str) -> str:
    """A chat template from the data folder."""
    return (DATA / f"{name}.jinja").read_text(encoding="utf-8").removesuffix("\n")


def write_folder(
    folder: Path, tokenizer: Tokenizer, chat_template: str | None = None, **config: object
) -> Path:
    """Lays a tokenizer out as a model's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
    } | config
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
    return folder


def _add(tokenizer: Tokenizer, **flags: bool) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False, **flags) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in WORDS_ADDED])
    return tokenizer


def _trained_bpe(tokenizer: Tokenizer, size: int = 600) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def byte_level() -> Tokenizer:
    """As GPT-2, Llama 3 and Qwen have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _add(_trained_bpe(tokenizer))


def byte_level_prefixed() -> Tokenizer:
    """Puts a blank before every piece, and a begin-of-text token before every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    _add(_trained_bpe(tokenizer))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<s>", "</s>")]
    )
    return tokenizer


def byte_level_stripping() -> Tokenizer:
    """Special tokens take the blanks behind them, as Phi-3's do."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _add(_trained_bpe(tokenizer), rstrip=True)


def unigram(prepend_scheme: str = "first") -> Tokenizer:
    """As T5 and the SentencePiece models: special tokens are among the words, NFKC makes them from look-alikes."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=prepend_scheme)
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return _add(tokenizer)


def unigram_always() -> Tokenizer:
    return unigram("always")


def sentencepiece_bpe() -> Tokenizer:
    """As Llama 2: no pre-tokenizer, a blank before every piece, bytes for what the vocabulary lacks."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokens = ["<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=tokens, show_progress=False)
    tokenizer.train_from_iterator([word for line in _CORPUS for word in line.split(" ")], trainer)
    return _add(_with_bytes_as_words(tokenizer))


def _with_bytes_as_words(tokenizer: Tokenizer) -> Tokenizer:
    """The trainer calls the bytes special; in models' tokenizers they are words like others."""
    description = json.loads(tokenizer.to_str())
    description["added_tokens"] = [t for t in description["added_tokens"] if t["content"] == "<unk>"]
    return Tokenizer.from_str(json.dumps(description))


def wordpiece() -> Tokenizer:
    """As BERT: lower case, punctuation apart, an unknown token."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return _add(tokenizer)


def normalized_specials() -> Tokenizer:
    """Special tokens are looked for in the normalized text, so `<|IM_END|>` is one too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    _trained_bpe(tokenizer)
    lowered = [t for t in SPECIAL if t == t.lower()]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=True) for t in lowered])
    return tokenizer


def overlapping_specials() -> Tokenizer:
    """Added tokens that begin with, contain and overlap special ones."""
    tokenizer = byte_level()
    more = ("<|im_end|><|im_start|>", "x<|im_start", "<|im_start|>user", "|>\n<|", "<<|im_end|>", "a<s")
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in more])
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    made.__name__: made
    for made in (
        byte_level,
        byte_level_prefixed,
        byte_level_stripping,
        unigram,
        unigram_always,
        sentencepiece_bpe,
        wordpiece,
        normalized_specials,
        overlapping_specials,
    )
}


_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

# How the pre-tokenizers of these models split, each by an expression of its own.
EXPRESSIONS = {
    "llama3": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def by_expression(name: str, behavior: str = "isolated", *, invert: bool = False) -> Tokenizer:
    """Byte-level BPE behind one of `EXPRESSIONS`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(EXPRESSIONS[name]), behavior, invert),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _add(_trained_bpe(tokenizer))


def gemma_like() -> Tokenizer:
    """Blanks become a sign, and the whole text goes to BPE at once."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokens = ["<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=tokens, show_progress=False)
    words = [" " + word for line in _CORPUS for word in line.split(" ")]
    tokenizer.train_from_iterator(words, trainer)
    return _add(_with_bytes_as_words(tokenizer))


def joining_words() -> Tokenizer:
    """As `gemma_like`, with words of the vocabulary that go over blanks: it must not be cut at them."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>"], show_progress=False)
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return _add(tokenizer)


def words_at_seams() -> Tokenizer:
    """Added tokens where texts would be cut, one of which takes the blanks behind it, one whole words only."""
    tokenizer = by_expression("llama3")
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("or not", "e, f", "x\ny")])
    tokenizer.add_tokens([AddedToken("lazy", rstrip=True), AddedToken(" dog", single_word=True)])
    return tokenizer


SPLITTING: dict[str, Callable[[], Tokenizer]] = {
    **{name: partial(by_expression, name) for name in EXPRESSIONS},
    "removed": lambda: by_expression("llama3", "removed", invert=True),
    "gemma_like": gemma_like,
    "joining_words": joining_words,
    "words_at_seams": words_at_seams,
}


@cache
def tokenizer_text(kind: str) -> str:
    """The trained tokenizer's JSON; each kind is trained once a run."""
    return (KINDS | SPLITTING)[kind]().to_str()


def sample(kind: str) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_text(kind))
