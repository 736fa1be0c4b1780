"""Formats numbers for people, in reports (page and text) and in `harness serve`."""

from __future__ import annotations

from typing import Final

NOTHING: Final = "\N{EN DASH}"
TIMES: Final = "\N{MULTIPLICATION SIGN}"
_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def count(value: float | None) -> str:
    """Format a number with thousands separators. Floats below 1000 get three significant digits."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.3g}"


def duration(ns: float | None) -> str:
    """Format a duration with a unit. Minutes begin at 100 s, and hours at 100 min."""
    if ns is None:
        return NOTHING
    if ns == 0:
        return "0 s"
    if ns >= 6_000_000_000_000:
        return f"{ns / 3_600_000_000_000:.1f} h"
    if ns >= 100_000_000_000:
        return f"{ns / 60_000_000_000:.1f} min"
    size, unit = next(((s, u) for s, u in _UNITS if ns >= s), _UNITS[-1])
    return f"{_digits(ns / size)} {unit}"


def seconds(value: float | None) -> str:
    """Format a duration that is given in seconds, like `duration`."""
    return duration(None if value is None else value * 1e9)


def milliseconds(ns: float | None) -> str:
    """Format a duration for a column of milliseconds. Values below a second get one decimal."""
    if ns is None:
        return NOTHING
    return f"{ns / 1e6:,.1f}" if ns < 1e9 else f"{ns / 1e6:,.0f}"


def size(n_bytes: int | None) -> str:
    """Format a number of bytes, in the unit that keeps the text short."""
    if n_bytes is None:
        return NOTHING
    if n_bytes < 1024:
        return f"{n_bytes} B"
    power = 1 if n_bytes < 1024**2 else 2 if n_bytes < 1024**3 else 3
    return f"{n_bytes / 1024**power:.1f} {('kB', 'MB', 'GB')[power - 1]}"


def _digits(value: float) -> str:
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{places}f}"


def share(value: float | None) -> str:
    """Format a share (0 to 1) in percent. Small shares get two significant digits."""
    if value is None:
        return NOTHING
    percent = value * 100
    if percent == 0:
        return "0 %"
    if percent < 0.001:
        return "< 0.001 %"
    if percent < 1:
        return f"{percent:#.2g} %"
    if 99.95 <= percent < 100:
        return "> 99.9 %"
    return f"{percent:.0f} %" if percent == 100 else f"{percent:.1f} %"


def ratio(value: float | None) -> str:
    """Format a ratio, for example as "1.5 times"."""
    if value is None:
        return NOTHING
    if value == 0:
        return f"0 {TIMES}"
    if value < 0.01:
        return f"< 0.01 {TIMES}"
    if value > 1000:
        return f"> 1000 {TIMES}"
    return f"{value:.2f} {TIMES}" if value < 10 else f"{value:.0f} {TIMES}"


def interval(low: float | None, high: float | None, unit: str) -> str:
    """Format both ends of an interval. `unit` is share, rate, ratio or ns."""
    if low is None or high is None:
        return NOTHING
    write = {"share": share, "rate": share, "ratio": ratio, "ns": duration}[unit]
    return f"{write(low)} … {write(high)}"


def p_value(value: float | None) -> str:
    """Format a p-value. For a tiny value, give only an upper bound."""
    if value is None:
        return NOTHING
    return "< 0.0001" if value < 0.0001 else f"{value:.2g}"
