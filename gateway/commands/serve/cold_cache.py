"""From options of the command line to what the embedded engine is told about the tiers below main memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from engine_adapters.embedded.cold_config import ColdCoding, SharedStore
from gateway.secrets import SecretError, secret

STORE_SECRET = "KVGATE_STORE_SECRET"  # noqa: S105  the variable's name
COLD_SECRET = "KVGATE_COLD_SECRET"  # noqa: S105

_GIB = 1 << 30


def shared_store(
    folder: Path | None,
    gib: float,
    mooncake: str | None,
    mooncake_host: str,
    mooncake_gib: float,
    secret_file: Path | None,
    environ: Mapping[str, str],
    *,
    mounted: bool = False,
) -> SharedStore | None:
    """The store that was asked for; None: none was.

    Raises:
        SecretError: two stores were asked for, or the secret is missing.
    """
    if folder is None and mooncake is None:
        return None
    if folder is not None and mooncake is not None:
        raise SecretError("--store-dir and --store-mooncake are two stores; choose one")
    key = secret(STORE_SECRET, secret_file, environ)
    if key is None:
        raise SecretError(
            "a shared store needs the secret that all its servers sign blocks with: --store-secret-file, or "
            f"{STORE_SECRET} in the environment"
        )
    if mounted and folder is None:
        raise SecretError("--store-mounted says something of --store-dir, and none is given")
    given = int(mooncake_gib * _GIB)
    return SharedStore(key, folder, int(gib * _GIB), mooncake, mooncake_host, given, mounted)


def cold_coding(
    compression: int | None,
    quantize: Literal["int8", "fp8"] | None,
    quantize_error: float,
    secret_file: Path | None,
    environ: Mapping[str, str],
) -> ColdCoding:
    """How blocks are kept below main memory.

    Raises:
        SecretError: the secret cannot be used.
    """
    return ColdCoding(compression, quantize, quantize_error, secret(COLD_SECRET, secret_file, environ))
