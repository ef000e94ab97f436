"""Options of the command line about the tiers below main memory, and their secrets."""

from pathlib import Path

import pytest

from engine_adapters.embedded.cold_config import ColdCoding, SharedStore
from gateway.commands.serve.cold_cache import cold_coding, shared_store
from gateway.secrets import SecretError, secret

LONG = "a secret of 16 b"


def test_a_secret_comes_from_the_file_or_else_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(LONG + "\n")
    assert secret("NAME", file, {"NAME": "another one, as long"}) == LONG.encode()
    assert secret("NAME", None, {"NAME": f" {LONG}\n"}) == LONG.encode()
    assert secret("NAME", None, {}) is secret("NAME", None, {"NAME": " "}) is None


@pytest.mark.parametrize("content", ["", "\n", "short"])
def test_an_empty_or_short_secret_is_refused_without_being_said(tmp_path: Path, content: str) -> None:
    file = tmp_path / "secret"
    file.write_text(content)
    with pytest.raises(SecretError, match="openssl rand") as caught:
        secret("NAME", file, {})
    assert "short " not in str(caught.value).replace("shorter", "")
    with pytest.raises(SecretError, match="NAME"):
        secret("NAME", None, {"NAME": "short"})


def test_a_secret_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="No such file"):
        secret("NAME", tmp_path / "nothing", {"NAME": LONG})


def test_a_store_is_a_folder_or_a_master_with_a_secret() -> None:
    environ = {"KVGATE_STORE_SECRET": LONG}
    folder = Path("shared")
    assert shared_store(None, 1, None, "h", 0, None, {}) is None
    assert shared_store(folder, 1, None, "h", 0, None, environ) == SharedStore(
        LONG.encode(), folder, 1 << 30, None, "h", 0
    )
    found = shared_store(None, 1, "m:1", "h", 0.5, None, environ)
    assert found == SharedStore(LONG.encode(), None, 1 << 30, "m:1", "h", 1 << 29)
    with pytest.raises(SecretError, match="choose one"):
        shared_store(folder, 1, "m:1", "h", 0, None, environ)
    with pytest.raises(SecretError, match="KVGATE_STORE_SECRET"):
        shared_store(folder, 1, None, "h", 0, None, {})


def test_how_cold_blocks_are_kept() -> None:
    assert cold_coding(None, None, 0.03, None, {}) == ColdCoding()
    environ = {"KVGATE_COLD_SECRET": LONG}
    assert cold_coding(3, "fp8", 0.01, None, environ) == ColdCoding(3, "fp8", 0.01, LONG.encode())
