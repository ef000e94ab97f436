"""The `kvgate` command. Results go to stdout, progress to stderr; heavy modules are imported when needed."""

import os
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.broken_pipe import ending_quietly
from gateway.commands.config.cli import config
from gateway.commands.doctor.cli import doctor
from gateway.commands.keys.cli import keys
from gateway.commands.ledger.cli import ledger
from gateway.commands.refuse import refuse
from gateway.commands.serve.command import serve

app = typer.Typer(
    help="An OpenAI-compatible gateway that makes prefix caches hit, and proves that they hit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Tables of figures, each against its peer in the same run.", no_args_is_help=True)
app.command()(serve)
app.command()(doctor)
app.add_typer(bench, name="bench")
app.add_typer(config, name="config")
sim = typer.Typer(help="Policies side by side over a trace of real traffic.", no_args_is_help=True)
app.add_typer(sim, name="sim")
app.add_typer(ledger, name="ledger")
app.add_typer(keys, name="keys")


def main() -> None:
    """Entry point of the console script."""
    ending_quietly(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            print(version("kvgate"))
        except PackageNotFoundError:
            print("not installed")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that stand before a command."""


def _end(benchmark: Callable[[], bool]) -> None:
    """Run it; a model that is not there is named with what to install, and a target that is missed is exit 1."""
    from engine_adapters.embedded.models.errors import ModelError

    try:
        reached = benchmark()
    except ModelError as error:
        refuse(str(error))
    if not reached:
        raise typer.Exit(1)


@bench.command("ttft")
def bench_ttft(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads of the engine.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Time to first token, cold and warm, against Transformers and llama.cpp."""
    from gateway.local.embedded import set_thread_waits

    set_thread_waits(os.environ)  # as when it serves
    try:
        from bench import ttft
    except ModuleNotFoundError as error:
        refuse(f"The benchmark needs {error.name}: pip install 'kvgate[embedded]'")
    _end(lambda: ttft.main(json=json, quick=quick, threads=threads))


@bench.command("cache")
def bench_cache(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Hits by tier, transfers, disk reads and the prefix index."""
    from gateway.local.embedded import set_thread_waits

    set_thread_waits(os.environ)
    try:
        from bench import cache
    except ModuleNotFoundError as error:
        refuse(f"The benchmark needs {error.name}: pip install 'kvgate[embedded]'")
    _end(lambda: cache.main(json=json, quick=quick))


@bench.command("canon")
def bench_canon(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Requests that converge: the open cases, a noisy log, and what canon costs."""
    try:
        from bench.canon import table
    except ModuleNotFoundError as error:
        refuse(f"The benchmark needs {error.name}: pip install 'kvgate[embedded]'")
    _end(lambda: table.main(json=json, quick=quick))


@bench.command("ledger")
def bench_ledger(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rounds.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """What the ledger costs a request, how fast it is written, how fast and small a report on it is."""
    try:
        from bench import ledger as ledger_bench
    except ModuleNotFoundError as error:
        refuse(f"The benchmark needs {error.name}: pip install 'kvgate[bench]'")
    _end(lambda: ledger_bench.main(json=json, quick=quick))


@bench.command("gateway")
def bench_gateway(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter rounds.")] = False,
    litellm: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="LiteLLM's program.", show_default="one that the bench installs"
        ),
    ] = None,
    conversations: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A trace of conversations, as sim route takes it."),
    ] = None,
    agents: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A trace of coding agents, as sim route takes it."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """What the gateway costs a request and a chunk, against a bare relay and LiteLLM's proxy."""
    try:
        import aiohttp  # noqa: F401  of the bare relay, whose process would be the first to miss it

        from bench.gateway import table
        from bench.sim.trace import TraceError
    except ModuleNotFoundError as error:
        refuse(f"The benchmark needs {error.name}: pip install 'kvgate[bench]'")
    try:
        reached = table.main(json=json, quick=quick, given=table.Given(litellm, conversations, agents))
    except TraceError as error:
        refuse(str(error))
    if not reached:
        raise typer.Exit(1)


@app.command()
def lint(
    logs: Annotated[
        list[Path], typer.Argument(help="Request logs, JSON a line, also gzipped; - is standard input.")
    ],
    policy: Annotated[
        str,
        typer.Option(
            help="What canon may do: off, observe, safe or full; full,json_in_text:act switches a rule."
        ),
    ] = "full",
    tokenizer: Annotated[
        str | None,
        typer.Option(help="A model's folder or name to count with.", show_default="4 bytes are a token"),
    ] = None,
    block_size: Annotated[int, typer.Option(min=1, max=4096, help="Tokens a block of the cache.")] = 16,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    html: Annotated[bool, typer.Option("--html", help="A page on stdout.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="SARIF 2.1.0 on stdout.")] = False,
    fail_under: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit with 1 if the reuse rate of the log as it is lies under this."),
    ] = None,
) -> None:
    """What breaks the prefixes of a request log: each cause with its price, and what ends it."""
    from gateway.commands.lint import command

    if json + html + sarif > 1:
        refuse("--json, --html and --sarif exclude each other.", 2)
    form: command.Format = "json" if json else "html" if html else "sarif" if sarif else "table"
    code = command.run(logs, policy, tokenizer, block_size, form, fail_under)
    if code:
        raise typer.Exit(code)


@app.command()
def canon(
    file: Annotated[Path, typer.Argument(help="A request body as JSON; - is standard input.")],
    policy: Annotated[
        str,
        typer.Option(
            help="What canon may do: off, observe, safe or full; full,json_in_text:act switches a rule."
        ),
    ] = "full",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, with the body.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if the body would be changed.")] = False,
) -> None:
    """Canonicalize one request body and show every edit as a diff."""
    from gateway.commands.canon import command

    code = command.run(file, policy, as_json=json, check=check)
    if code:
        raise typer.Exit(code)


@app.command()
def audit(
    since: Annotated[
        str | None,
        typer.Option(help="How far back: 30m, 1h, 7d.", show_default="the whole ledger"),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Figures for each of these: tenant, model, engine, replica, route; commas between."
        ),
    ] = "",
    ledger: Annotated[
        str | None, typer.Option(help="A file or a database URL.", show_default="the gateway's own")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Prices of tokens by model: what each tenant cost."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    html: Annotated[bool, typer.Option("--html", help="A page on stdout.")] = False,
) -> None:
    """What was reused and what was computed again, over the ledger; exit 1 where figures cannot be true."""
    from gateway.commands.audit import command

    if json and html:
        refuse("--json and --html exclude each other.", 2)
    form: command.Format = "json" if json else "html" if html else "table"
    columns = [name.strip() for name in by.split(",") if name.strip()]
    code = command.run(ledger, os.environ, since, columns, form, time.time(), prices)
    if code:
        raise typer.Exit(code)


@app.command()
def purge(
    tenant: Annotated[str, typer.Option(help="Who is forgotten.")],
    group: Annotated[
        bool, typer.Option("--group", help="Also what other tenants of its group share with it.")
    ] = False,
    flush_engines: Annotated[
        bool, typer.Option("--flush-engines", help="Empty engines that cannot forget one tenant.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(dir_okay=False, help="The gateway's file, whose admin: is asked.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="The admin app.", show_default="http://127.0.0.1:8001")
    ] = None,
    key_env: Annotated[
        str, typer.Option(help="The environment variable that holds the admin key.")
    ] = "KVGATE_ADMIN_KEY",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Forget a tenant: KV on every tier, memory, predictions, rows, bodies; exit 1 where something stays."""
    from gateway.commands.purge import command

    options = command.PurgeOptions(tenant, group, flush_engines, config, url, key_env)
    code = command.run(options, os.environ, as_json=json)
    if code:
        raise typer.Exit(code)


@sim.command("evict")
def sim_evict(
    trace: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSON Lines with hash_ids.")],
    policy: Annotated[
        list[str], typer.Option(help="opt, adaptive_lrfu, lru, lru_k, cost or all; may be repeated.")
    ],
    blocks: Annotated[list[int], typer.Option(min=1, help="Capacity in blocks; may be repeated.")],
    block_size: Annotated[int, typer.Option(min=1, help="Tokens a block; a trace has 512.")] = 512,
    json: Annotated[bool, typer.Option("--json", help="JSON on stdout: an object, or a list.")] = False,
) -> None:
    """Block hit rates of eviction policies over the real cache, without bytes, against the optimum."""
    from bench.sim import evict
    from bench.sim.trace import TraceError
    from cache_core.errors import UnknownPolicyError

    try:
        evict.main(trace, policy, blocks, block_size=block_size, json=json)
    except (TraceError, UnknownPolicyError) as error:
        refuse(str(error))


@sim.command("route")
def sim_route(
    trace: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="JSON Lines with timestamp and hash_ids.")
    ],
    replicas: Annotated[int, typer.Option(min=1, max=1024, help="Replicas of one engine.")] = 8,
    blocks: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Blocks of 512 tokens that each replica caches; may be repeated."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="round_robin, least_load, consistent_hash, affinity_rule, prefix or all; may be repeated.",
            show_default="all",
        ),
    ] = None,
    prefill_speed: Annotated[float, typer.Option(min=1, help="Tokens a second of one replica.")] = 8000.0,
    json: Annotated[bool, typer.Option("--json", help="A JSON list on stdout.")] = False,
) -> None:
    """Ways to choose a replica side by side: hit rate, balance, estimated time to first token."""
    from bench.sim import route
    from bench.sim.trace import TraceError

    try:
        route.main(trace, policy or ["all"], blocks or [2500], replicas, prefill_speed, json=json)
    except (TraceError, route.UnknownRoutingError) as error:
        refuse(str(error))
