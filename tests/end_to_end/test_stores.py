"""Two servers in processes of their own share what one of them computed; the command line says how."""

from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.conftest import Serving, serving
from tests.waiting import wait_until

RULES = " ".join(f"Rule {number}: be brief." for number in range(60))


def ask(server: Serving, question: str) -> int:
    """Tokens of the prompt that were not computed again."""
    client = server.client()
    (model,) = client.models.list().data
    answer = client.completions.create(model=model.id, prompt=RULES + question, max_tokens=2, temperature=0)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return answer.usage.prompt_tokens_details.cached_tokens or 0


def files_in(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file() and path.suffix != ".part")


def test_a_second_server_goes_on_from_what_the_first_one_computed(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    store, secret = tmp_path / "store", tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    model = ["--model", str(tiny_model("llama")), "--host-cache-gib", "0.05", "--kv-cache-gib", "0.05"]
    coding = ["--cold-compression", "1", "--cold-quantize", "fp8"]
    shared = [*model, *coding, "--store-dir", str(store), "--store-secret-file", str(secret)]
    with serving(*shared) as one:
        assert ask(one, " What is one?") == 0
        reused = ask(one, " What is two?")
        assert reused > 100
        wait_until(lambda: files_in(store) >= reused // 16, "it is in the store")
    with serving(*shared) as other:
        assert ask(other, " What is three?") >= reused - 16
    secret.write_text("fedcba9876543210\n")
    with serving(*shared) as stranger:
        assert ask(stranger, " What is four?") == 0
