"""The `name=value` part of a fault in words: how bad links, clocks, processors and disks get."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.cluster import (
    DISK_DELAY_MS_MAX,
    GAP_MS_MAX,
    RESET_AFTER_MS_MAX,
    SLICE_BYTES_MAX,
    DiskQuality,
    LinkQuality,
    StreamQuality,
)
from harness.errors import UsageError
from harness.faults.kinds import Clock, Condition, Cpu, Disk, Shape, Stream

__all__ = ["CONDITIONS", "condition", "duration_s", "shape", "wrong"]

CONDITIONS: Final = ("clock", "cpu", "disk")
"""The verbs that need settings and hit nodes; `shape` needs them, too, and hits links."""
DRIFT_PPM_MAX: Final = 500_000
FACTOR_MAX: Final = 100
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_DELAY_MS_MAX: Final = 60_000
_OFFSET_MS_MAX: Final = 86_400_000
_RATE_KB_S_MAX: Final = 1_000_000
_Parse = Callable[[str, str], Any]
"""The value of a word, of the fault with this text; `None` where the rule of its name is broken."""


def wrong(text: str, what: str, fix: str) -> UsageError:
    """The error for a fault in words that reads `text`."""
    return UsageError(f"the fault {text!r} {what}; {fix}")


def duration_s(text: str, value: str) -> float:
    """A time such as 200ms, 4s or 2m, in s; raises `UsageError`."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m)", value)
    if found is None:
        raise wrong(text, f"has the time {value!r}", "write a number and ms, s or m: 4s, 200ms")
    return float(found[1]) * _SECONDS[found[2]]


def _ms(limit_ms: float, *, signed: bool = False) -> _Parse:
    def parse(text: str, value: str) -> float | None:
        minus = signed and value.startswith("-")
        ms = duration_s(text, value.removeprefix("-") if minus else value) * 1000
        return (-ms if minus else ms) if 0 < ms <= limit_ms else None

    return parse


def _share(_: str, value: str) -> float | None:
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)%", value)
    share = float(found[1]) / 100 if found else 0.0
    return share if 0 < share <= 1 else None


def _whole(unit: str, limit: int, *, signed: bool = False) -> _Parse:
    def parse(_: str, value: str) -> int | None:
        found = re.fullmatch(rf"({'-?' if signed else ''}\d{{1,7}}){unit}", value)
        return int(found[1]) if found and 1 <= abs(int(found[1])) <= limit else None

    return parse


def _factor(_: str, value: str) -> float | None:
    found = re.fullmatch(r"\d{1,4}(?:\.\d{1,6})?", value)
    return float(value) if found and 1 < float(value) <= FACTOR_MAX else None


def _yes(_: str, value: str) -> bool | None:
    return True if value == "yes" else None


_Rules = Mapping[str, tuple[str, _Parse, str]]
_DELAY: Final = _ms(_DELAY_MS_MAX)
_SHAPE: Final[_Rules] = {
    "delay": ("delay_ms", _DELAY, "at most 60s, such as delay=200ms"),
    "jitter": ("jitter_ms", _DELAY, "at most 60s, such as jitter=50ms"),
    "loss": ("drop", _share, "a share such as loss=20%"),
    "duplicate": ("duplicate", _share, "a share such as duplicate=5%"),
    "reorder": ("reorder", _share, "a share such as reorder=10%"),
    "rate": ("rate_kb_s", _whole("kB/s", _RATE_KB_S_MAX), "a whole number such as rate=64kB/s"),
}
_STREAM: Final[_Rules] = {
    "slice": (
        "slice_bytes",
        _whole("B", SLICE_BYTES_MAX),
        f"1 to {SLICE_BYTES_MAX} bytes, such as slice=128B",
    ),
    "gap": ("gap_ms", _ms(GAP_MS_MAX), "at most 60s, such as gap=10ms"),
    "reset-after": ("reset_after_ms", _ms(RESET_AFTER_MS_MAX), "at most 5s: reset-after=500ms"),
}
_CLOCK: Final[_Rules] = {
    "offset": ("offset_ms", _ms(_OFFSET_MS_MAX, signed=True), "a jump such as offset=-5s"),
    "drift": (
        "drift_ppm",
        _whole("ppm", DRIFT_PPM_MAX, signed=True),
        f"1 to {DRIFT_PPM_MAX} either way, such as drift=-500ppm",
    ),
    "strobe": ("strobe_ms", _DELAY, "how long it is on and off, such as strobe=500ms"),
}
_CPU: Final[_Rules] = {
    "factor": ("factor", _factor, f"more than 1, at most {FACTOR_MAX}, such as factor=10"),
}
_DISK: Final[_Rules] = {
    "error": ("error", _share, "a share of requests such as error=5%"),
    "full": ("full", _yes, "full=yes"),
    "delay": ("delay_ms", _ms(DISK_DELAY_MS_MAX), "at most 60s, such as delay=50ms"),
    "bitrot": ("bitrot", _share, "a share of blocks such as bitrot=5%"),
}


def _fields(text: str, verb: str, settings: Sequence[str], rules: _Rules) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in rules:
            raise wrong(text, f"sets {name!r}", f"{verb} has {', '.join(rules)}")
        field, parse, rule = rules[name]
        if field in fields:
            raise wrong(text, f"sets {name} twice", "set it once")
        fields[field] = parse(text, value)
        if fields[field] is None:
            raise wrong(text, f"has {name}={value}", f"write {rule}")
    if not fields:
        raise wrong(text, "says nothing of how bad it gets", f"add one of {', '.join(rules)}")
    return fields


def shape(text: str, settings: Sequence[str]) -> Shape | Stream:
    """A fault of links, or of the streams on them; raises `UsageError`."""
    fields = _fields(text, "shape", settings, {**_SHAPE, **_STREAM})
    of_streams = fields.keys() & {field for field, _, _ in _STREAM.values()}
    if not of_streams:
        return Shape(quality=msgspec.convert(fields, LinkQuality))
    if of_streams != fields.keys():
        fix = f"make {', '.join(_STREAM)} a fault of their own, with a --fault each"
        raise wrong(text, "worsens both links and the streams on them", fix)
    if "gap_ms" in fields and "slice_bytes" not in fields:
        raise wrong(text, "has a gap between no pieces", "add their size: slice=128B")
    return Stream(quality=msgspec.convert(fields, StreamQuality))


def condition(text: str, verb: str, settings: Sequence[str]) -> Condition:
    """A fault of a clock, a processor or a disk; raises `UsageError`."""
    match verb:
        case "clock":
            fields = _fields(text, verb, settings, _CLOCK)
            if "strobe_ms" in fields and "offset_ms" not in fields:
                raise wrong(text, "strobes without an offset", "add what it jumps by: offset=1s")
            return Clock(**fields)
        case "cpu":
            return Cpu(**_fields(text, verb, settings, _CPU))
        case _:
            return Disk(quality=msgspec.convert(_fields(text, verb, settings, _DISK), DiskQuality))
