"""Reused and recomputed tokens over time as one small SVG."""

from datetime import UTC, datetime

from gateway.commands.audit import words
from gateway.reports.audit import AuditReport

_WIDTH, _HEIGHT, _LEFT, _FOOT = 1000, 190, 60, 22  # units of the drawing


def plot(report: AuditReport) -> str:
    """Stacked bars, one a span of time; nothing where there is nothing to show."""
    bins = report.bins
    if not bins:
        return ""
    top = max(each.reused + each.recomputed for each in bins) or 1
    begin, end = bins[0].begin, bins[-1].begin + report.bin_s
    wide = (_WIDTH - _LEFT) / len(bins)
    bars = []
    for i, each in enumerate(bins):
        x, whole = _LEFT + i * wide, _HEIGHT - _FOOT
        low, high = each.reused / top * whole, (each.reused + each.recomputed) / top * whole
        bars.append(_bar(x, whole - low, wide, low, "reused"))
        bars.append(_bar(x, whole - high, wide, high - low, "computed"))
    label = f"{words.tokens(top)} tokens in {words.span(report.bin_s)}"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Reused and recomputed tokens over time">'
        f"{''.join(bars)}{_text(0, 12, label)}{_text(_LEFT, _HEIGHT - 6, _clock(begin))}"
        f"{_text(_WIDTH, _HEIGHT - 6, _clock(end), 'end')}"
        f"{_legend(360, 'reused', 'reused tokens')}{_legend(520, 'computed', 'recomputed tokens')}</svg>"
    )


def _bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    if height <= 0:
        return ""
    gap = min(1.0, width * 0.15)
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - gap:.1f}" height="{height:.1f}" '
        f'style="fill: var(--{kind})"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="11" text-anchor="{anchor}" style="fill: var(--soft)">{text}</text>'


def _legend(x: float, kind: str, text: str) -> str:
    return _bar(x, _HEIGHT - 15, 11, 11, kind) + _text(x + 16, _HEIGHT - 6, text)


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%m-%d %H:%M:%S}"
