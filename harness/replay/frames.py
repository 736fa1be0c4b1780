"""Frames of Python code: where tasks wait, and which code runs at a stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final

FRAMES_MAX: Final = 200
_LOOPS: Final = frozenset({"World._run_node", "World._run"})
_STOP: Final = "Watch._stop"
_OURS: Final = ("harness.replay.", "harness.environments.sim.", "harness.run.recorder")


def frames_of(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of a waiting task, the outermost first."""
    frames: list[FrameType] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(frames) < FRAMES_MAX:
        frame, following = _suspended(awaited)
        if frame is None:
            break
        frames.append(frame)
        awaited = following
    return frames


def _suspended(awaited: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of a coroutine or generator, and the object that it awaits."""
    for kind in ("cr", "gi", "ag"):
        frame = getattr(awaited, f"{kind}_frame", None)
        if isinstance(frame, FrameType):
            following = getattr(awaited, f"{kind}_await", None)
            return frame, following or getattr(awaited, "gi_yieldfrom", None)
    return None, None


def running_frames() -> list[FrameType]:
    """Return the frames of the callback that is running in the world, the outermost first.

    The harness's frames outside of the callback's own code are left out. Between two events, the
    list is empty.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the public way to a frame
    while frame is not None and frame.f_code.co_qualname not in _LOOPS:
        frames.append(frame)
        frame = frame.f_back
    if frame is None:
        return []
    stopped = [i for i, each in enumerate(frames) if each.f_code.co_qualname == _STOP]
    del frames[: stopped[-1] + 1 if stopped else 0]
    while frames and module_of(frames[0]).startswith(_OURS):
        del frames[0]
    frames.reverse()
    return frames


def module_of(frame: FrameType) -> str:
    """Return the name of the module of a frame's code."""
    return str(frame.f_globals.get("__name__", "?"))


def place_of(frame: FrameType) -> str:
    """Return where in the code a frame is, such as `targets.kudu.consensus.log.Log.run:188`."""
    return (
        f"{module_of(frame)}.{frame.f_code.co_qualname.replace('.<locals>', '')}:{line_of(frame)}"
    )


def places_of(frames: Sequence[FrameType]) -> list[str]:
    """Return the places of a task's frames. If there may be more frames, a last line says so."""
    more = [f"... perhaps more than {FRAMES_MAX} frames"] if len(frames) >= FRAMES_MAX else []
    return [*map(place_of, frames), *more]


def line_of(frame: FrameType) -> int:
    """Return the current line of a frame, or its code's first line if it has none."""
    return frame.f_lineno or frame.f_code.co_firstlineno
