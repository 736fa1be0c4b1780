"""The substitutes for the clocks of a program: the modules `time` and `datetime`."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from harness.environments.sim.programs.program_loop import ProgramLoop

_NS: Final = 1_000_000_000
_MONOTONIC: Final = ("monotonic", "perf_counter", "process_time", "thread_time")
_UTC: Final = dt.timezone.utc  # noqa: UP017 - the class of programs is a substitute


class Clocks:
    """The clocks of a node as its program reads them; blocking calls advance them."""

    def __init__(self, loop: ProgramLoop) -> None:
        self._loop = loop
        self.wall_ns, self.monotonic_ns = loop.wall_ns, loop.local_ns

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Map the functions of `time` that read a clock or wait, by name, to their substitutes."""
        functions: dict[str, Callable[..., Any]] = {
            "time": lambda: self.wall_ns() / _NS,
            "time_ns": self.wall_ns,
            "sleep": self._sleep,
            "gmtime": self._gmtime,
            "localtime": self._gmtime,
            "ctime": lambda seconds=None: time.asctime(self._gmtime(seconds)),
            "asctime": lambda t=None: time.asctime(self._gmtime() if t is None else t),
            "strftime": lambda form, t=None: time.strftime(
                form, self._gmtime() if t is None else t
            ),
            "mktime": lambda t: float(__import__("calendar").timegm(t)),
            "clock_gettime": lambda which: self._clock_gettime(which) / _NS,
            "clock_gettime_ns": self._clock_gettime,
        }
        for name in _MONOTONIC:
            functions[name] = lambda: self.monotonic_ns() / _NS
            functions[f"{name}_ns"] = self.monotonic_ns
        return functions

    def _gmtime(self, seconds: float | None = None) -> time.struct_time:
        return time.gmtime(self.wall_ns() / _NS if seconds is None else seconds)

    def _clock_gettime(self, which: int) -> int:
        return self.wall_ns() if which == time.CLOCK_REALTIME else self.monotonic_ns()

    def _sleep(self, seconds: float) -> None:
        del seconds
        self._loop.refuse("time.sleep, which would block its event loop", "await asyncio.sleep")

    def time_module(self) -> ModuleType:
        module = ModuleType("time", time.__doc__)
        module.__dict__.update(time.__dict__)
        module.__dict__.update(self.functions(), timezone=0, altzone=0, daylight=0)
        module.__dict__["tzname"] = ("UTC", "UTC")
        return module

    def datetime_module(self) -> ModuleType:
        """Return a copy of `datetime` that reads the node's clock; the local time zone is UTC."""
        clocks = self

        def now_utc(tz: Any = None) -> dt.datetime:
            seconds, ns = divmod(clocks.wall_ns(), _NS)
            base = real(1970, 1, 1, tzinfo=_UTC)
            moment = base + dt.timedelta(seconds=seconds, microseconds=ns // 1000)
            return moment.replace(tzinfo=None) if tz is None else moment.astimezone(tz)

        real = dt.datetime
        real_date = dt.date

        class LikeDate(type):
            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, real_date)

        class LikeDateTime(type):
            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, real)

        class SimDateTime(dt.datetime, metaclass=LikeDateTime):
            @classmethod
            def now(cls, tz: Any = None) -> Any:
                return _as(cls, now_utc(tz))

            @classmethod
            def utcnow(cls) -> Any:
                return _as(cls, now_utc())

            @classmethod
            def today(cls) -> Any:
                return _as(cls, now_utc())

            @classmethod
            def fromtimestamp(cls, timestamp: float, tz: Any = None) -> Any:
                value = real.fromtimestamp(timestamp, _UTC if tz is None else tz)
                return _as(cls, value.replace(tzinfo=None) if tz is None else value)

            def astimezone(self, tz: Any = None) -> Any:
                aware = self.replace(tzinfo=_UTC) if self.tzinfo is None else self
                return real.astimezone(aware, _UTC if tz is None else tz)

            def timestamp(self) -> float:
                aware = self.replace(tzinfo=_UTC) if self.tzinfo is None else self
                return real.timestamp(aware)

        class SimDate(dt.date, metaclass=LikeDate):
            @classmethod
            def today(cls) -> Any:
                moment = now_utc()
                return cls(moment.year, moment.month, moment.day)

            @classmethod
            def fromtimestamp(cls, timestamp: float) -> Any:
                moment = real.fromtimestamp(timestamp, _UTC)
                return cls(moment.year, moment.month, moment.day)

        for kind, name in ((SimDateTime, "datetime"), (SimDate, "date")):
            kind.__name__ = kind.__qualname__ = name
            kind.__module__ = "datetime"
        module = ModuleType("datetime", dt.__doc__)
        module.__dict__.update(dt.__dict__, datetime=SimDateTime, date=SimDate)
        return module


def _as(cls: Any, moment: dt.datetime) -> Any:
    return cls(
        *(moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second),
        *(moment.microsecond, moment.tzinfo),
    )
