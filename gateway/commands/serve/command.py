"""`kvgate serve`: its options. Heavy modules are imported when needed."""

import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gateway.commands.refuse import refuse
from gateway.commands.serve.choices import ControlTokens, Device, Dtype, Quantize, WritePolicy
from gateway.commands.serve.where import Where
from gateway.config.environment import first_variable, names_engines

_MAX_SIZE = 1 << 20  # GiB, or MiB of a body: whatever is larger is a slip


def serve(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="A YAML file with engines and settings; options about model, cache and canon then stand in it.",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.", show_default="8000"),
    ] = None,
    drain_delay: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=3600,
            help="Seconds after a signal to stop in which new requests are still taken, though it is not ready.",
            show_default="0",
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            min=0, max=86400, help="Seconds that running requests may then take.", show_default="30"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A Hugging Face name (owner/model) or a local folder.", show_default="SmolLM2-135M-Instruct"
        ),
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="The name clients use.", show_default="the model's own")
    ] = None,
    device: Annotated[Device, typer.Option(help="Where the model runs.")] = Device.auto,
    dtype: Annotated[
        Dtype, typer.Option(help="Numbers of weights and KV; auto: float32 on a CPU, else the model's own.")
    ] = Dtype.auto,
    kv_cache_gib: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=_MAX_SIZE,
            help="Memory for cached keys and values.",
            show_default="from the free memory",
        ),
    ] = None,
    host_cache_gib: Annotated[
        float,
        typer.Option(
            min=0, max=_MAX_SIZE, help="Main memory for prefixes that left the KV pool; 0 keeps none."
        ),
    ] = 0,
    disk_cache_dir: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="A folder for prefixes on disk; needs --host-cache-gib."),
    ] = None,
    disk_cache_gib: Annotated[
        float, typer.Option(min=0.001, max=_MAX_SIZE, help="Size of the disk cache.")
    ] = 8,
    write_policy: Annotated[
        WritePolicy,
        typer.Option(
            help="When a block is copied to main memory, and on: at its second use, at its eviction, never."
        ),
    ] = WritePolicy.write_through_on_second_hit,
    cold_write_mib_s: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=_MAX_SIZE,
            help="MiB a second at most that go down to the disk, and to the store.",
            show_default="as fast as they take it",
        ),
    ] = None,
    watermark: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIER=START:STOP",
            help="Of device, host, disk or store: the share in use above which room is made in idle time, and down "
            "to which. May be given for each.",
            show_default="0.85:0.70",
        ),
    ] = None,
    scope_share: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Of each cache: what one group's prompts may hold before they make room for others.",
        ),
    ] = 0.25,
    cold_compression: Annotated[
        int | None,
        typer.Option(
            min=1, max=19, help="zstd level of blocks on disk and in the store.", show_default="none"
        ),
    ] = None,
    cold_quantize: Annotated[
        Quantize | None,
        typer.Option(
            help="Keep a byte a number there, which loses some of it; blocks over the bound stay exact.",
            show_default="exact",
        ),
    ] = None,
    cold_quantize_error: Annotated[
        float, typer.Option(min=0, max=0.5, help="That bound: relative error of a block, root mean square.")
    ] = 0.03,
    cold_secret_file: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="Encrypt blocks there with this secret; or set KVGATE_COLD_SECRET."
        ),
    ] = None,
    store_dir: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="A mounted folder that several servers share; needs --host-cache-gib."
        ),
    ] = None,
    store_gib: Annotated[
        float, typer.Option(min=0.001, max=_MAX_SIZE, help="Size of that folder, of all servers together.")
    ] = 64,
    store_mounted: Annotated[
        bool,
        typer.Option(
            "--store-mounted",
            help="--store-dir is, or lies in, a mount: without one nothing is written, and an empty one is taken.",
        ),
    ] = False,
    store_mooncake: Annotated[
        str | None, typer.Option(help="Mooncake Store instead: its master's host:port.")
    ] = None,
    store_mooncake_host: Annotated[
        str, typer.Option(help="This machine, as the store's others reach it.")
    ] = "127.0.0.1",
    store_mooncake_gib: Annotated[
        float, typer.Option(min=0, max=_MAX_SIZE, help="Main memory this server gives to the store.")
    ] = 0,
    store_secret_file: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="The secret its servers sign blocks with; or set KVGATE_STORE_SECRET."
        ),
    ] = None,
    block_size: Annotated[
        int, typer.Option(min=1, max=1024, help="Tokens in a block, the unit of reuse.")
    ] = 16,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of the engine.", show_default="one a core")
    ] = None,
    max_body_mib: Annotated[float, typer.Option(min=0.001, max=_MAX_SIZE, help="Largest request body.")] = 16,
    chat_template: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A Jinja file instead of the model's own."),
    ] = None,
    control_tokens_in_content: Annotated[
        ControlTokens,
        typer.Option(
            help="Special tokens typed in a message: allow lets them act, report keeps them text and counts them, "
            "reject refuses the request."
        ),
    ] = ControlTokens.report,
    canon_policy: Annotated[
        list[str] | None,
        typer.Option(
            help="How requests are rewritten so that prefixes match: off, observe, safe or full; with chat=, "
            "messages= or chat/MODEL= in front for some requests, and switches of single rules behind, as in "
            "full,learned_slots:act. May be repeated.",
            show_default="safe",
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            help="Where a row a request goes: off, a path, or postgresql://USER@HOST/NAME; or set KVGATE_LEDGER.",
            show_default="a file in the state folder",
        ),
    ] = None,
    ledger_keep: Annotated[
        str | None,
        typer.Option(help="How long rows stay: 30d, 12h, ...", show_default="for good"),
    ] = None,
    capture_bodies: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="Keep bodies there, for `kvgate lint`.", show_default="none is kept"
        ),
    ] = None,
    capture_share: Annotated[float, typer.Option(min=0, max=1, help="Of requests, by their ids.")] = 0.01,
    capture_redact: Annotated[
        list[str] | None,
        typer.Option(help="A path to take out of them, such as messages[*].content. May be repeated."),
    ] = None,
    capture_redact_pattern: Annotated[
        list[str] | None, typer.Option(help="A regular expression to take out. May be repeated.")
    ] = None,
    capture_structure_only: Annotated[
        bool, typer.Option("--capture-structure-only", help="Keep marks of the same length for all texts.")
    ] = False,
    capture_max_gib: Annotated[
        float, typer.Option(min=0.001, max=_MAX_SIZE, help="Size of that folder; the oldest files go.")
    ] = 1,
    tool_parser: Annotated[
        str | None, typer.Option(help="How tool calls are read.", show_default="found from the template")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")
    ] = False,
    allow_no_keys: Annotated[
        bool,
        typer.Option("--allow-no-keys", help="Listen beyond this machine although nobody needs a key."),
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that serve.", show_default="1")
    ] = None,
    seat: Annotated[int | None, typer.Option(hidden=True)] = None,
    json: Annotated[
        bool, typer.Option("--json", help="JSON log lines, and JSON on stdout when ready.")
    ] = False,
) -> None:
    """Serve one model, or the engines of a configuration, over the OpenAI API."""
    from gateway.workers.seat import Seat

    where = Where(
        host,
        port,
        drain_delay,
        grace,
        json=json,
        allow_no_keys=allow_no_keys,
        processes=workers,
        seat=None if seat is None else Seat.take(seat),
    )
    if config is not None or names_engines(os.environ):
        _serve_config(context, config, where)
    if stray := first_variable(os.environ):
        refuse(
            f"{stray}: it is read with --config FILE, or where KVGATE__ENGINES__0__KIND says what is served"
        )
    from gateway.commands.serve import embedded

    status = embedded.serve(
        where,
        embedded.ModelOptions(
            model,
            served_model_name,
            device,
            dtype,
            kv_cache_gib,
            block_size,
            scope_share,
            threads,
            chat_template,
            control_tokens_in_content,
            tool_parser,
            trust_remote_code=trust_remote_code,
        ),
        embedded.TierOptions(
            host_cache_gib,
            disk_cache_dir,
            disk_cache_gib,
            write_policy,
            cold_write_mib_s,
            tuple(watermark or ()),
            embedded.CodingOptions(
                cold_compression,
                None if cold_quantize is None else cold_quantize.value,
                cold_quantize_error,
                cold_secret_file,
            ),
            embedded.StoreOptions(
                store_dir,
                store_gib,
                store_mooncake,
                store_mooncake_host,
                store_mooncake_gib,
                store_secret_file,
                mounted=store_mounted,
            ),
        ),
        embedded.KeptOptions(
            ledger,
            ledger_keep,
            capture_bodies,
            capture_share,
            tuple(capture_redact or ()),
            tuple(capture_redact_pattern or ()),
            capture_structure_only,
            capture_max_gib,
        ),
        tuple(canon_policy or ()),
        max_body_mib,
        os.environ,
    )
    raise typer.Exit(status)


def _serve_config(context: typer.Context, file: Path | None, where: Where) -> NoReturn:
    from gateway.commands.serve.config import OptionsTwiceError, serve_config
    from gateway.config.errors import ConfigError
    from gateway.ledger.errors import LedgerError
    from gateway.process.listener import ListenError

    given = [
        name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")
    ]
    try:
        status = serve_config(file, where, given, os.environ)
    except (ConfigError, OptionsTwiceError, LedgerError, ListenError) as error:
        refuse(str(error))
    raise typer.Exit(status)
