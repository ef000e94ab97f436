"""Tokenizer and chat template of a GGUF file, as the files Transformers and `tokenizers` read."""

import json
from pathlib import Path

from engine_adapters.embedded.models.errors import UnusableCheckpointError
from engine_adapters.embedded.models.gguf_fields import GgufFields

_CONTROL = 3  # tokenizer.ggml.token_type of a control token


def write_tokenizer(fields: GgufFields, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja into `folder`.

    Raises:
        UnusableCheckpointError: the tokenizer is of a kind not known here; a near miss would give other ids.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = fields.get("tokenizer.ggml.model", str), fields.get("tokenizer.ggml.pre", str)
    if kind != ("gpt2", "smollm"):
        raise UnusableCheckpointError(
            f"the GGUF file's tokenizer is {kind}; only ('gpt2', 'smollm') is known"
        )
    tokens = fields.get("tokenizer.ggml.tokens", list)
    types = fields.get("tokenizer.ggml.token_type", list)
    merges = [tuple(merge.split(" ")) for merge in fields.get("tokenizer.ggml.merges", list)]

    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # "smollm" names GPT-2's splitting after every digit has become a piece of its own.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, type_ in zip(tokens, types, strict=True) if type_ == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))

    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[fields.get("tokenizer.ggml.bos_token_id", int)],
        "eos_token": tokens[fields.get("tokenizer.ggml.eos_token_id", int)],
        "pad_token": tokens[fields.get("tokenizer.ggml.padding_token_id", int)],
        "unk_token": tokens[fields.get("tokenizer.ggml.unknown_token_id", int)],
        "add_bos_token": fields.get("tokenizer.ggml.add_bos_token", bool),
        "add_prefix_space": fields.get("tokenizer.ggml.add_space_prefix", bool),
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields.get("llama.context_length", int),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    template = fields.get("tokenizer.chat_template", str)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
