"""`kvgate doctor` on the command line."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.refuse import refuse

UNUSABLE = 2  # exit code: nothing could be asked


def doctor(
    url: Annotated[str, typer.Argument(help="The engine, for example http://127.0.0.1:30000.")],
    kind: Annotated[
        str | None,
        typer.Option(
            help="What it is: vllm, sglang, llama_cpp, openai, anthropic, ...", show_default="as it says"
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model to ask.", show_default="the first it lists")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option(help="The environment variable that holds its API key.")
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="The file that holds it.", dir_okay=False)] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, help="The model's folder, to compare our render of chats with its."
        ),
    ] = None,
    words: Annotated[
        int,
        typer.Option(min=64, max=100_000, help="Of the longest prompt; hosted APIs cache none under 1,024."),
    ] = 1500,
    kv_events: Annotated[
        str | None,
        typer.Option(
            help="Where it publishes KV events, as tcp://HOST:PORT.",
            show_default="where it says that it does",
        ),
    ] = None,
    isolation: Annotated[
        bool,
        typer.Option("--isolation", help="Are tenants apart in what is cached: by reports, and by time."),
    ] = False,
    key_a: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="--isolation: where one tenant's key is, env:NAME or file:PATH."),
    ] = None,
    key_b: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="--isolation: the same of a tenant that must not share with it."),
    ] = None,
    key_mate: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="--isolation: the same of a tenant of the first one's group."),
    ] = None,
    trials: Annotated[int, typer.Option(min=12, max=200, help="--isolation: on each tier.")] = 24,
    fill_tokens: Annotated[
        int,
        typer.Option(min=0, max=1 << 30, help="--isolation: at most, to push prefixes down to lower tiers."),
    ] = 200_000,
    tier: Annotated[
        list[str] | None,
        typer.Option(help="--isolation: a tier that has to be reached; may be repeated.", show_default="all"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Can this engine report reuse, does it hit, does it isolate: a few requests, a verdict, what to change."""
    from gateway.commands.doctor import command

    if not isolation and (key_a or key_b or key_mate or tier):
        refuse("--key-a, --key-b, --key-mate and --tier are for --isolation: say that, too.", UNUSABLE)
    if key_env is not None and key_file is not None:
        refuse("The key is in the environment or in a file: say one of --key-env and --key-file.", UNUSABLE)
    if isolation:
        from gateway.commands.doctor import isolation as apart

        if tokenizer is not None or kv_events is not None:
            refuse("--tokenizer and --kv-events are not for --isolation: leave them out.", UNUSABLE)

        asked = apart.IsolationOptions(
            url,
            kind,
            model,
            key_env if key_file is None else f"file:{key_file}",
            key_a,
            key_b,
            key_mate,
            words,
            trials,
            fill_tokens,
            tuple(tier or ()),
        )
        code = apart.run(asked, os.environ, as_json=json)
    else:
        options = command.DoctorOptions(url, kind, model, key_env, tokenizer, words, key_file, kv_events)
        code = command.run(options, os.environ, as_json=json)
    if code:
        raise typer.Exit(code)
