"""Requests for ids that the system generates. The vocabulary is `harness.vocabularies.ids`."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from harness.case import Case
from harness.generator import Generator
from harness.plugins import API_VERSION, Option, Request, Workload
from harness.vocabularies import Call
from harness.vocabularies.ids import Generate
from workloads.numbered import NumberedOps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _IdOps(NumberedOps):
    def call(self, rng: random.Random) -> Call:
        del rng
        return Generate()


class UniqueIdsWorkload(Workload):
    """Requests for new ids."""

    api_version = API_VERSION
    name = "unique-ids"
    doc = "generate ids: no two are the same"
    vocabulary = "ids"
    options: tuple[Option, ...] = ()
    checkers = ("unique-ids", "liveness", "crash", "stats")

    def generator(self, case: Case) -> Generator:
        del case
        return _IdOps()

    def probe(self, case: Case, attempt: int, retry: int) -> Sequence[Request]:
        del case, attempt, retry
        return (Request.of(Generate()),)

    def final(self, case: Case) -> Sequence[Request]:
        del case
        return (Request.of(Generate()),)
