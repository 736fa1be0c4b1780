"""Actors on one lake take turns. In each turn, one actor runs until its next storage call.

A test draws whose turn it is, whether the call fails, and whether the actor dies before or after
the call. An actor is a thread that runs only during its turns, so equal draws give equal runs.
"""

import contextlib
import queue
import threading
from types import SimpleNamespace

from results.lake.log.storage_errors import AgainError

DEADLINE_S = 60.0
HARM = ("die before", "die after", "fail before", "fail after")


class DeadError(BaseException):
    """The process of an actor was killed."""


class Actor:
    """A thread with its own `Lake` object; `said` has the runs that the lake acknowledged to it."""

    def __init__(self, name, lake, work):
        self.name, self.lake, self.said = name, lake, None
        self._turn, self._moved = queue.Queue(), queue.Queue()
        self.waiting = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        for log in lake.logs.values():
            for call in ("commit", "refresh"):
                setattr(log, call, self._stepping(f"{call} {log.table}", getattr(log, call)))
        place = lake.place
        place.delete = self._stepping("delete", place.delete)
        place.writing = self._stepping_block("upload", place.writing)
        self._thread.start()
        self._wait()

    def _run(self, work):
        with contextlib.suppress(DeadError):
            self._step("begin")
            self.said = work(self.lake)
        self._moved.put(None)

    def _wait(self):
        self.waiting = self._moved.get(timeout=DEADLINE_S)

    def move(self, harm=None):
        """Let the actor execute its pending call, and run until its next call."""
        self._turn.put(harm)
        self._wait()

    def _step(self, name):
        self._moved.put(name)
        return self._turn.get(timeout=DEADLINE_S)

    def _act(self, harm, moment):
        if harm == f"die {moment}":
            raise DeadError
        if harm == f"fail {moment}":
            raise AgainError("a 503")

    def _stepping(self, name, call):
        def step(*args, **options):
            harm = self._step(name)
            self._act(harm, "before")
            answer = call(*args, **options)
            self._act(harm, "after")
            return answer

        return step

    def _stepping_block(self, name, block):
        @contextlib.contextmanager
        def step(*args):
            harm = self._step(name)
            self._act(harm, "before")
            with block(*args) as inside:
                yield inside
            self._act(harm, "after")

        return step


def play(actors, draw_turn, draw_harm):
    """Run all actors to their end; return a description of the events, for failure messages."""
    told = []
    while moving := [actor for actor in actors if actor.waiting is not None]:
        actor = draw_turn(moving)
        harm = draw_harm()
        told.append(SimpleNamespace(actor=actor.name, call=actor.waiting, harm=harm))
        actor.move(harm)
    return [f"{line.actor}: {line.call} {line.harm or ''}" for line in told]
