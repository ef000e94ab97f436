"""The command itself: reads logs, prints one of the reports, and says by its exit code whether reuse is enough."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rich.console import Console

from canon.errors import CanonError
from canon.lint import Linter, LintReport, encoded_by
from gateway.commands.lint.html import as_html
from gateway.commands.lint.log_files import Logs
from gateway.commands.lint.sarif import as_sarif
from gateway.commands.lint.terminal import print_report
from gateway.commands.lint.tokenizers import tokenizer_of
from gateway.commands.wording import counted, unreadable

Format = Literal["table", "json", "html", "sarif"]

ENOUGH, TOO_LITTLE, UNUSABLE = 0, 1, 2  # exit codes
_QUIET = 2.0  # seconds without progress


def run(
    paths: list[Path],
    policy: str,
    tokenizer: str | None,
    block_size: int,
    form: Format,
    fail_under: float | None,
) -> int:
    """Lint the logs and print a report; the exit code."""
    try:
        counted_by = None if tokenizer is None else tokenizer_of(tokenizer)
        encode = None if counted_by is None else encoded_by(counted_by)
        logs = Logs(paths)
        logs.progress = _progress(logs.size)
        linter = Linter(policy, encode, block_size)
        for request in logs.requests():
            linter.add(request.body, request.scope, request.response)
    except (OSError, EOFError) as error:
        return _unusable(unreadable(error))
    except CanonError as error:
        return _unusable(str(error))
    report = linter.report()
    if counted_by is not None:
        report = replace(report, template=counted_by.prefix_hazards)
    if not report.requests:
        reasons = ", ".join(f"{counted(count, 'line')} {reason}" for reason, count in logs.skipped.items())
        return _unusable(
            f"No request found ({reasons or 'no lines'}). A line is a body, or has it under `request` or `input`."
        )
    _print(report, logs, policy, form)
    if fail_under is not None and report.reuse_before < fail_under:
        print(f"The reuse rate of {report.reuse_before:.3f} is under {fail_under:g}.", file=sys.stderr)
        return TOO_LITTLE
    return ENOUGH


def _print(report: LintReport, logs: Logs, policy: str, form: Format) -> None:
    if form == "table":
        console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140)
        print_report(report, logs, policy, console)
    elif form == "html":
        print(as_html(report, logs.places, policy))
    elif form == "sarif":
        print(json.dumps(as_sarif(report, logs.places, _version()), indent=1))
    else:
        print(json.dumps({**report.as_json(), "skipped_lines": logs.skipped}, indent=1))


def _progress(size: int | None) -> Callable[[int, int], None]:
    """A line on stderr, at most every two seconds."""
    started = last = time.monotonic()

    def progress(read: int, requests: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _QUIET:
            return
        last = now
        share = f"{read / size:4.0%}, " if size else ""
        print(
            f"kvgate lint: {share}{requests:,} requests, {read / 1e6:,.0f} MB in {now - started:.0f} s",
            file=sys.stderr,
            flush=True,
        )

    return progress


def _unusable(why: str) -> int:
    print(f"kvgate lint: {why}", file=sys.stderr)
    return UNUSABLE


def _version() -> str:
    try:
        return version("kvgate")
    except PackageNotFoundError:
        return "0"
