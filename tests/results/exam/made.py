"""Hand-made rows and results of exams, and a planted defect that is cheap to find."""

import contextlib

import msgspec

from harness.case import Case
from harness.plugins import PlantedDefect
from harness.soak import CheckerVerdict, SeedResult
from results.exam.rows import DEFECT, Row
from results.exam.scores import scoreboard
from targets.kudu.master import leadership

TOY = Case(seed=0, target="toy-register", workload="register", time_limit_s=1.0)


@contextlib.contextmanager
def _broken():
    """Plant a defect: no master ever becomes the leader."""
    original = leadership.Leadership.__init__

    def fail(self, *args, **options):
        raise AssertionError("planted")

    leadership.Leadership.__init__ = fail
    try:
        yield
    finally:
        leadership.Leadership.__init__ = original


@contextlib.contextmanager
def _harmless():
    yield


SHORT = "--time-limit 2 --nemesis none"
DEFECTS = {
    "harmless": PlantedDefect(title="nothing", plant=_harmless, options=SHORT, unfound="harmless"),
    "no-leader": PlantedDefect(title="no master leads", plant=_broken, options=SHORT),
}


def row(name="x", kind=DEFECT, **fields):
    about = {"target": "toy-register", "title": "wrong", "case": TOY, "seeds": range(1, 31)}
    return Row(kind=kind, name=name, **{**about, **fields})


def result(seed, verdict="valid", checker="c", fault="kill", cpu_s=1.0, **fields):
    said = ()
    if verdict == "invalid":
        said = (CheckerVerdict(checker, verdict, "why", f"{checker} · rule · {fault} · get"),)
    return SeedResult(
        seed=seed, verdict=verdict, reason="why", checkers=said, cpu_s=cpu_s, **fields
    )


def results(*verdicts, first=1, **fields):
    return {
        seed: result(seed, verdict, **fields) for seed, verdict in enumerate(verdicts, start=first)
    }


def board(*pairs, cut="", commit="c1"):
    made = scoreboard(pairs, commit=commit, cut=cut, refused={})
    return msgspec.structs.replace(made, made="2026-01-01T00:00:00Z")
