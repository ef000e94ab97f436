"""Kernels are built once, by whoever comes first, and nothing depends on their being there."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import engine_adapters.embedded.native.library as library_module
from engine_adapters.embedded.attention import NativeBackend, Segment, TorchBackend
from engine_adapters.embedded.fast_linear import speed_up_linears
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.native import NativeBuildError, NativeLibrary, build, load_native
from tests.engine_adapters.embedded.reference_models import difference, pair, prompt
from tests.requirements import require_that


@pytest.fixture
def native() -> NativeLibrary:
    library = load_native()
    require_that(library is not None, "the native kernels are missing: install a C++ compiler")
    assert library is not None
    return library


def script(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def obedient(folder: Path, name: str) -> str:
    """A compiler that notes each call in a file and makes the library it is told to make, empty."""
    note = f'echo "$@" >> {folder / name}.calls'
    return script(folder, name, f'test "$1" = --version && exit 0\n{note}\nfor last; do :; done\n: > "$last"')


def test_a_build_is_kept_and_used_again(tmp_path: Path) -> None:
    compiler, cache = obedient(tmp_path, "compiler"), tmp_path / "cache"
    first = build(cache, [compiler])
    assert build(cache, [compiler]) == first
    assert len((tmp_path / "compiler.calls").read_text().splitlines()) == 1
    assert [path.name for path in cache.iterdir()] == [first.name], "nothing half-built is left behind"


def test_processes_that_build_at_once_all_get_a_whole_library(tmp_path: Path, native: NativeLibrary) -> None:
    code = (
        "import sys; from pathlib import Path; from engine_adapters.embedded.native import NativeLibrary, build\n"
        "NativeLibrary(build(Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 1


def test_another_compiler_gets_another_file(tmp_path: Path) -> None:
    names = {build(tmp_path / "cache", [obedient(tmp_path, name)]).name for name in ("one", "other")}
    assert len(names) == 2


def test_a_compiler_that_does_not_know_native_is_asked_without(tmp_path: Path) -> None:
    picky = script(
        tmp_path,
        "picky",
        'case "$*" in --version) exit 0;; *=native*) exit 1;; esac\nfor last; do :; done\n: > "$last"',
    )
    assert build(tmp_path / "cache", [picky]).is_file()


def test_no_compiler_is_a_build_error(tmp_path: Path) -> None:
    with pytest.raises(NativeBuildError, match="no C\\+\\+ compiler"):
        build(tmp_path, ["no-such-compiler"])


@pytest.mark.parametrize("body", ["exit 1", 'test "$1" = --version && exit 0; echo it broke >&2; exit 1'])
def test_a_failing_compiler_is_a_build_error_and_leaves_nothing(tmp_path: Path, body: str) -> None:
    compiler = script(tmp_path, "broken", body)
    with pytest.raises(NativeBuildError, match="broken"):
        build(tmp_path / "cache", [compiler])
    assert not list((tmp_path / "cache").glob("*"))


def test_without_kernels_torch_does_all_the_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Path) -> Path:
        raise NativeBuildError("no compiler today")

    monkeypatch.setattr(library_module, "build", fail)
    monkeypatch.setattr("engine_adapters.embedded.model_runner.load_native", load_native.__wrapped__)
    reference, ours = pair("llama")
    runner = ModelRunner(ours, num_blocks=8)
    assert isinstance(runner.backend, TorchBackend)
    assert [record.getMessage() for record in caplog.records].count(
        "no native kernels, torch does all the work: no compiler today"
    ) == 1
    tokens = prompt(40)
    blocks = torch.arange(3, dtype=torch.int32).numpy()
    with torch.inference_mode():
        expected = reference(torch.from_numpy(tokens).long()[None], use_cache=False).logits[0, -1:]
    assert difference(runner.forward([Segment(tokens, 0, blocks, sample=True)]), expected) <= 1e-4


def test_a_float32_model_on_a_cpu_gets_the_kernels(native: NativeLibrary) -> None:
    assert isinstance(ModelRunner(pair("llama")[1], num_blocks=4).backend, NativeBackend)


def test_another_dtype_does_not(native: NativeLibrary) -> None:
    assert isinstance(ModelRunner(pair("llama")[1].bfloat16(), num_blocks=4).backend, TorchBackend)


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 13, 16, 32])
@pytest.mark.parametrize(("columns", "depth"), [(64, 64), (7, 33), (130, 576), (1, 1)])
def test_the_linear_kernel_is_a_linear_layer(
    native: NativeLibrary, rows: int, columns: int, depth: int
) -> None:
    x, weight, bias = torch.randn(1, rows, depth), torch.randn(columns, depth), torch.randn(columns)
    for each in (bias, None):
        ours = native.linear(x, weight, each)
        torch.testing.assert_close(ours, F.linear(x, weight, each), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [0, 3, 100])
def test_a_sped_up_layer_takes_any_number_of_rows(native: NativeLibrary, rows: int) -> None:
    layer = torch.nn.Linear(24, 10)
    x = torch.randn(2, rows, 24)
    with torch.inference_mode():
        expected = layer(x)
        assert speed_up_linears(torch.nn.Sequential(layer), native) == 1
        torch.testing.assert_close(layer(x), expected)
        wide = torch.randn(24, rows * 2).t()
        torch.testing.assert_close(layer(wide), F.linear(wide, layer.weight, layer.bias))


def test_the_kernels_bring_no_threads_of_their_own(native: NativeLibrary) -> None:
    """They run on the threads torch already has; torch's runtime must be the one they found."""
    code = (
        "import os, sys, torch; torch.set_num_threads(2)\n"
        "from engine_adapters.embedded.native import load_native\n"
        "a = torch.randn(4, 512); w = torch.randn(4096, 512); library = load_native()\n"
        "big = torch.randn(1 << 22); big.sum()\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "library.linear(a, w, None)\n"
        "sys.exit(len(os.listdir('/proc/self/task')) - before)"
    )
    require_that(Path("/proc/self/task").is_dir(), "/proc is missing: run on Linux")
    done = subprocess.run([sys.executable, "-c", code], timeout=300, check=False)
    assert done.returncode == 0
