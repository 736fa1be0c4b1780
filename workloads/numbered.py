"""Random operations with serial numbers. The numbers make the values of operations unique."""

from __future__ import annotations

import abc
import dataclasses
import random

from harness.generator import Context, Draft, Emit, Pending, Step
from harness.vocabularies import Call
from workloads.contention import Blind


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumberedOps(Blind, abc.ABC):
    """The base class of endless generators whose n-th operation depends only on n and on chance."""

    count: int = 1

    def op(self, ctx: Context) -> Step:
        if ctx.free_process() is None:
            return Pending(self)
        call = self.call(ctx.random)
        return Emit(Draft(call.f, call.asked()), dataclasses.replace(self, count=self.count + 1))

    @abc.abstractmethod
    def call(self, rng: random.Random) -> Call:
        """Return the operation with the number `count`."""
