"""Degradations of links, streams, disks, clocks and processors, and the capabilities that they
need.

A quality is a struct of amounts, such as a delay in ms. For each amount, `EFFECTS` has the
capability that it needs, its name in `--fault`, its allowed values, and the rule that combines
several amounts. Everything else derives from this table: the requirements of a fault, its settings
in words, the checks, and the matrix of faults and environments.
"""

from __future__ import annotations

import enum
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

import msgspec

from harness.errors import UsageError

DELAY_MS_MAX: Final = 60_000.0
RESET_AFTER_MS_MAX: Final = 5_000.0  # a real Toxiproxy takes up to this long to heal the fault
SLICE_BYTES_MAX: Final = 32_768  # a proxy reads at most this much at once
RATE_KB_S_MAX: Final = 1_000_000
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}


class Capability(enum.Enum):
    """A kind of change to a cluster that an environment may support."""

    START = "start"
    STOP = "stop"
    KILL = "kill"
    PAUSE = "pause"
    WIPE = "wipe"
    PARTITION = "partition"
    PARTITION_ONE_WAY = "partition-one-way"
    DELAY = "delay"
    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    THROTTLE = "throttle"
    STALL = "stall"
    SLICE = "slice"
    RESET_AFTER = "reset-after"
    RESET = "reset"
    LOSE_UNSYNCED = "lose-unsynced"
    TORN_WRITE = "torn-write"
    CLOCK_SKEW = "clock-skew"
    CLOCK_DRIFT = "clock-drift"
    SLOW_CPU = "slow-cpu"
    DISK_ERROR = "disk-error"
    DISK_FULL = "disk-full"
    DISK_SLOW = "disk-slow"
    BIT_ROT = "bit-rot"
    AIM_AT_EVENTS = "aim-at-events"
    SINGLE_CLIENTS = "single-clients"


# --- amounts ---------------------------------------------------------------------------------


def _added(amounts: Sequence[float]) -> float:
    """Add amounts one by one, because since Python 3.12 `sum` corrects rounding errors."""
    return functools.reduce(operator.add, amounts, 0.0)


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for one amount of a quality: its values, and how several amounts combine."""

    needs: Capability | None  # `None` if it needs no more than the amount before it
    word: str  # the amount's name in `--fault`, or ""
    read: Callable[[str], Any]  # parses a value in words; `None` for an invalid text
    rule: str  # the allowed values with an example, for error messages
    most: float
    least: float = 0
    together: Callable[[Sequence[Any]], Any] = _added

    @property
    def example(self) -> str:
        """An example of the amount in words: the last part of `rule`."""
        return self.rule.rpartition(" ")[2]


def seconds_in(text: str) -> float | None:
    """Convert a time such as 200ms, 4s or 2m to seconds. Returns `None` for any other string."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m)", text)
    return float(match[1]) * _SECONDS[match[2]] if match else None


def duration(
    word: str, needs: Capability | None, most_ms: float, example: str, *, signed: bool = False
) -> Effect:
    """Return the rules for an amount that is a time in ms; only `signed` allows negative ones."""

    def read(text: str) -> float | None:
        minus = signed and text.startswith("-")
        s = seconds_in(text[minus:])
        ms = (s or 0.0) * 1000
        return (-ms if minus else ms) if 0 < ms <= most_ms else None

    rule = f"a time of at most {most_ms / 1000:g}s such as {word}={example}"
    least = -most_ms if signed else 0.0
    return Effect(needs=needs, word=word, read=read, rule=rule, most=most_ms, least=least)


def number(
    word: str, needs: Capability, unit: str, most: int, example: str, *, signed: bool = False
) -> Effect:
    """Return the rules for a whole number of a unit, from 1; `signed` allows negative ones."""

    def read(text: str) -> int | None:
        match = re.fullmatch(rf"({'-?' if signed else ''}\d{{1,7}}){unit}", text)
        return int(match[1]) if match and 1 <= abs(int(match[1])) <= most else None

    either = " either way" if signed else ""
    rule = f"a whole number from 1 to {most}{either}, with its unit, such as {word}={example}"
    least = -most if signed else 0
    return Effect(needs=needs, word=word, read=read, rule=rule, most=most, least=least)


def multiple(word: str, needs: Capability, most: int, example: str) -> Effect:
    """Return the rules for an amount that is a factor above 1."""

    def read(text: str) -> float | None:
        match = re.fullmatch(r"\d{1,4}(?:\.\d{1,6})?", text)
        return float(text) if match and 1 < float(text) <= most else None

    rule = f"more than 1 and at most {most}, such as {word}={example}"
    return Effect(
        needs=needs, word=word, read=read, rule=rule, most=most, least=1, together=math.prod
    )


def _share(word: str, needs: Capability, of: str, example: str) -> Effect:
    """Return the rules for a probability. Several of them combine as independent events."""

    def read(text: str) -> float | None:
        match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)%", text)
        share = float(match[1]) / 100 if match else 0.0
        return share if 0 < share <= 1 else None

    def any_of(shares: Sequence[float]) -> float:
        return 1.0 - math.prod(1.0 - share for share in shares)

    rule = f"a share of {of} such as {word}={example}"
    return Effect(needs=needs, word=word, read=read, rule=rule, most=1, together=any_of)


def _flag(needs: Capability, word: str = "") -> Effect:
    def read(text: str) -> bool | None:
        return True if text == "yes" else None

    return Effect(needs=needs, word=word, read=read, rule=f"{word}=yes", most=1, together=any)


def _slowest(rates: Sequence[int]) -> int:
    return min(filter(None, rates), default=0)


# --- qualities -------------------------------------------------------------------------------


def required(amounts: msgspec.Struct, effects: Mapping[str, Effect]) -> frozenset[Capability]:
    """Return the capabilities that the amounts of a quality need."""
    well = type(amounts)()
    wanted = {
        effect.needs
        for name, effect in effects.items()
        if getattr(amounts, name) != getattr(well, name)
    }
    return frozenset(need for need in wanted if need is not None)


class _Quality(msgspec.Struct, frozen=True):
    """The base of all qualities. A quality without amounts changes nothing."""

    EFFECTS: ClassVar[Mapping[str, Effect]]

    @classmethod
    def together(cls, qualities: Sequence[Self]) -> Self:
        """Combine qualities: add delays, combine probabilities, and take the lowest rate."""
        each = {name: [getattr(each, name) for each in qualities] for name in cls.EFFECTS}
        return cls(**{name: cls.EFFECTS[name].together(values) for name, values in each.items()})

    @property
    def requires(self) -> frozenset[Capability]:
        return required(self, self.EFFECTS)

    def bounded(self) -> Self:
        """Limit each amount to its maximum. The sum of several faults may be larger."""
        most = {name: effect.most for name, effect in self.EFFECTS.items()}
        too_much = {name: most[name] for name in most if (getattr(self, name) or 0) > most[name]}
        return msgspec.structs.replace(self, **too_much)

    def check(self) -> None:
        for name, effect in self.EFFECTS.items():
            value = getattr(self, name)
            if not effect.least <= (value or 0) <= effect.most:
                limits = f"{int(effect.least)} .. {int(effect.most)}"
                raise UsageError(f"{name} is {value}; it must be in {limits}")


class LinkQuality(_Quality, frozen=True, kw_only=True):
    """The faults of a link for frames (simulation), packets (Docker) or bytes (proxies)."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    drop: float = 0.0  # probability per frame, 0..1
    duplicate: float = 0.0
    reorder: float = 0.0
    rate_kb_s: int = 0
    stall: bool = False  # hold back all data until the fault is healed

    EFFECTS: ClassVar = {
        "delay_ms": duration("delay", Capability.DELAY, DELAY_MS_MAX, "200ms"),
        "jitter_ms": duration("jitter", Capability.DELAY, DELAY_MS_MAX, "50ms"),
        "drop": _share("loss", Capability.DROP, "frames", "20%"),
        "duplicate": _share("duplicate", Capability.DUPLICATE, "frames", "5%"),
        "reorder": _share("reorder", Capability.REORDER, "frames", "10%"),
        "rate_kb_s": msgspec.structs.replace(
            number("rate", Capability.THROTTLE, "kB/s", RATE_KB_S_MAX, "64kB/s"), together=_slowest
        ),
        "stall": _flag(Capability.STALL),
    }


class StreamQuality(_Quality, frozen=True, kw_only=True):
    """The faults of a link for byte streams above TCP, with the meaning of Toxiproxy's toxics.

    Data are halved until no piece is larger than `slice_bytes`, so few pieces are smaller than half
    of `slice_bytes`. A connection is reset, in both directions, `reset_after_ms` after its first
    bytes in this direction; these bytes are lost.
    """

    slice_bytes: int = 0  # 0: no slicing
    gap_ms: float = 0.0  # the wait after each piece
    reset_after_ms: float | None = None

    EFFECTS: ClassVar = {
        "slice_bytes": number("slice", Capability.SLICE, "B", SLICE_BYTES_MAX, "128B"),
        "gap_ms": duration("gap", Capability.SLICE, DELAY_MS_MAX, "10ms"),
        "reset_after_ms": duration(
            "reset-after", Capability.RESET_AFTER, RESET_AFTER_MS_MAX, "500ms"
        ),
    }

    def check(self) -> None:
        """Raise `UsageError` if an amount is invalid, or the quality has no effect."""
        super().check()
        if self == StreamQuality():
            raise UsageError(f"{self} has no effect on the streams; set slice_bytes, ...")
        if self.gap_ms and not self.slice_bytes:
            raise UsageError(f"gap_ms is {self.gap_ms} without pieces; set slice_bytes as well")


class DiskQuality(_Quality, frozen=True, kw_only=True):
    """The faults of a disk for the requests of a node.

    A failed request has no effect. On a full disk, writes fail. A read of a rotten block (4 KiB of
    a file) returns data with one flipped bit, always the same bit.
    """

    error: float = 0.0  # the probability that a request fails with EIO, 0..1
    full: bool = False  # requests that need space fail with ENOSPC
    delay_ms: float = 0.0
    bitrot: float = 0.0  # the probability that a block is rotten, 0..1

    EFFECTS: ClassVar = {
        "error": _share("error", Capability.DISK_ERROR, "requests", "5%"),
        "full": _flag(Capability.DISK_FULL, "full"),
        "delay_ms": duration("delay", Capability.DISK_SLOW, DELAY_MS_MAX, "50ms"),
        "bitrot": _share("bitrot", Capability.BIT_ROT, "blocks", "5%"),
    }
