"""Models of two to four layers with random weights: real architectures that load in no time."""

from pathlib import Path
from typing import Any, Literal, get_args

Arch = Literal["llama", "qwen3", "mistral", "gemma3"]
ARCHITECTURES: tuple[Arch, ...] = get_args(Arch)

VOCABULARY = 512
SLIDING_WINDOW = 24  # tokens; no multiple of a block of 16, so that a window ends inside one

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "tie_word_embeddings": False,
}


def save_tiny_model(arch: Arch, folder: Path, *, seed: int = 7, **changes: Any) -> Path:
    """Write a model of `arch` with a tokenizer into `folder`, the same bytes each time, and return `folder`.

    `changes` go into the model's configuration. Matrices get a standard deviation of 0.2, ten times the usual
    one, so that logits are far apart and a wrong one shows.
    """
    return save_random_model(tiny_config(arch, **changes), folder, seed=seed)


def save_random_model(config: Any, folder: Path, *, seed: int = 7) -> Path:
    """`save_tiny_model` for any configuration with its vocabulary."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.2)
                else:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def tiny_config(arch: Arch, **changes: Any) -> Any:
    """The configuration of a tiny model."""
    from transformers import Gemma3TextConfig, LlamaConfig, MistralConfig, Qwen3Config

    common = _COMMON | changes
    match arch:
        case "llama":
            return LlamaConfig(**common)
        case "qwen3":
            return Qwen3Config(**common)
        case "mistral":
            return MistralConfig(**{"sliding_window": SLIDING_WINDOW} | common)
        case "gemma3":
            layers = ["sliding_attention", "full_attention", "sliding_attention"]
            own = {"sliding_window": SLIDING_WINDOW, "layer_types": layers, "query_pre_attn_scalar": 16}
            return Gemma3TextConfig(**own | common)


def _save_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer: ids 0 to 2 are special, 3 to 258 the bytes; the others decode to nothing."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(special + alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=special[1], eos_token=special[2], pad_token=special[2]
    )
    fast.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    fast.save_pretrained(folder)
