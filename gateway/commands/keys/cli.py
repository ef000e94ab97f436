"""`kvgate keys`: its commands and their options."""

import sys
from typing import Annotated

import orjson
import typer

from gateway.commands.refuse import refuse

keys = typer.Typer(help="API keys of tenants. Only their hashes are kept.", no_args_is_help=True)

_SHORTEST = 16  # characters; a shorter key can be found by trying


@keys.command("new")
def new(
    tenant: Annotated[str, typer.Option(help="Whose key it is to be.")],
    expires: Annotated[
        str | None, typer.Option(help="A date such as 2027-01-31, UTC.", show_default="never")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="Its answers say how they were routed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Make a key. It is shown once; what is to be kept is its line in the file of keys."""
    from gateway.tenants.keys import expiry_of, hash_of, new_key

    _check_name(tenant)
    try:
        if expires is not None:
            expiry_of(expires)
    except ValueError as error:
        refuse(f"--expires: {error}")
    key = new_key()
    _tell(tenant, hash_of(key), expires, key, admin=admin, as_json=json)


@keys.command("hash")
def hash_(
    tenant: Annotated[
        str | None, typer.Option(help="Whose key it is; then the whole line is written.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Hash a key that is there already, from standard input: what stands on a command line is seen by others."""
    from gateway.tenants.keys import hash_of

    if tenant is not None:
        _check_name(tenant)
    key = sys.stdin.readline().strip()
    if len(key) < _SHORTEST or not key.isascii() or not key.isprintable() or " " in key:
        refuse(f"a key has {_SHORTEST} characters at least, all of them ASCII, and no space")
    _tell(tenant, hash_of(key), None, None, as_json=json)


def _check_name(tenant: str) -> None:
    from gateway.tenants.names import checked_name

    try:
        checked_name(tenant)
    except ValueError as error:
        refuse(f"--tenant: {error}")


def _tell(
    tenant: str | None,
    hashed: str,
    expires: str | None,
    key: str | None,
    *,
    admin: bool = False,
    as_json: bool,
) -> None:
    from gateway.tenants.keys_file import ADMIN

    line = " ".join(part for part in (tenant, hashed, expires, ADMIN if admin else None) if part)
    if as_json:
        told = {
            "tenant": tenant,
            "key": key,
            "sha256": hashed,
            "expires": expires,
            "admin": admin or None,
            "line": line,
        }
        print(orjson.dumps({name: value for name, value in told.items() if value is not None}).decode())
        return
    if key is not None:
        print(f"key: {key}")
        print("It is not shown again. For the file that keys_file names:", file=sys.stderr)
    print(line)
