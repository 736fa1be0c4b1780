"""A case: all data that decide what happens in a run, in one JSON document.

The seed determines the fault schedule, the workload's choices, the nodes' random numbers and, in
simulation, latencies. A planned case contains the schedule itself, so shrinking can edit it. No
part of a case depends on the environment: a case that failed in simulation also runs in Docker.
"""

from __future__ import annotations

import hashlib
import random
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from harness.errors import UsageError, choices_near
from harness.ops import ScheduledOp

__all__ = [
    "CASE_SCHEMA",
    "IMPORTED",
    "SEARCH",
    "SYSTEM_NAME",
    "Case",
    "Damage",
    "Fault",
    "Trigger",
    "imported_case",
    "load_case",
    "replay_command",
    "stream",
]

CASE_SCHEMA: Final = 1
IMPORTED: Final = "imported"
"""The value of `target`, `workload` and `environment` for a history that another tool recorded."""
FAULT_S_MIN: Final = 0.001
DRAW_MAX: Final = 100
_INDEPENDENT: Final = "independent"
SEARCH: Final = "search"
"""The key in `Case.drawn` for the name of the search that chose the faults (see `harness.search`).
"""
SYSTEM_NAME: Final = "system_name"
"""The key in `Case.target_options` for the name of a system that a file declares."""
Damage = Literal["minority", "majority"]
"""How much of a replica group may lose synced data to faults (`harness.faults.budget`)."""
OP_TIMEOUT_S_MAX: Final = 60.0
"""The maximum of `--op-timeout`. It is half of the grace period of fault leases, so that active
faults outlast the operations that are still open when the chaos phase ends."""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One planned fault. `at_ns` is its start in ns after the start of the chaos phase.

    `args` holds the values that the planner drew for the nemesis. The nemesis chooses the nodes
    only when the fault starts, by their roles at that time.
    """

    id: str
    nemesis: str
    at_ns: int
    duration_ns: int
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a node (`Env.event`) that starts a fault.

    The fault starts at the `nth` matching event after its planned time, or `after_ns` after this
    event. An event matches if its kind is `event` and its fields equal the fields in `where`, as
    JSON or as text.
    """

    event: str
    where: dict[str, str] = msgspec.field(default_factory=dict)
    nth: int = 1
    after_ns: int = 0

    def matches(self, kind: str, data: Mapping[str, Any]) -> bool:
        return kind == self.event and all(
            name in data and value in (data[name], msgspec.json.encode(data[name]).decode())
            for name, value in self.where.items()
        )


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All data that decide what happens in a run.

    `faults` and `ops` are `None` before planning. If `ops` stays `None`, the workload's generator
    makes the operations from the seed.

    If `draw` is not 0, the seed chooses 1 to `draw` nemeses from `nemeses`. It also chooses knobs,
    options and the pace of faults, except what the user set: the options and knobs that are
    present, the fields that differ from their defaults, and the fields in `given`. In a planned
    case, the fields hold the chosen values, and `drawn` holds the values before the choice, which
    are equal for all seeds of a soak. If a search made the faults, `drawn` also names the search
    (`SEARCH`).
    """

    schema: int = CASE_SCHEMA
    seed: int
    target: str = "kudu"
    profile: str = "strict"
    bugs: tuple[str, ...] = ()
    target_options: dict[str, Any] = msgspec.field(default_factory=dict)
    workload: str = "ddl"
    workload_options: dict[str, Any] = msgspec.field(default_factory=dict)
    nemeses: tuple[str, ...] = ("none",)
    draw: int = 0
    # fields that the user set to their default values, so the seed must not change them
    given: tuple[str, ...] = ()
    drawn: dict[str, Any] = msgspec.field(default_factory=dict)
    interval_s: float = 10.0
    duration_s: float = 5.0
    time_limit_s: float = 60.0
    rate: float = 40.0
    concurrency: int = 10
    op_timeout_s: float = 2.0
    damage: Damage = "minority"
    knobs: dict[str, Any] = msgspec.field(default_factory=dict)
    faults: tuple[Fault, ...] | None = None
    ops: tuple[ScheduledOp, ...] | None = None
    # Checkers that the user adds to the workload's checkers. Planning adds the target's checkers.
    checkers: tuple[str, ...] = ()

    @property
    def system(self) -> str:
        """The name of the system under test in reports: the declared name, or the target's."""
        name = self.target_options.get(SYSTEM_NAME)
        return name if isinstance(name, str) and name else self.target

    @property
    def searched(self) -> bool:
        """Whether a search chose the faults. Such faults may have no effect."""
        return SEARCH in self.drawn

    @property
    def model(self) -> str | None:
        """The model that judges an imported history; `None` for a run, because checkers judge
        runs.
        """
        if self.workload != IMPORTED:
            return None
        if len(self.checkers) != 1:
            raise UsageError(
                "the case of an imported history names no model; import its file again"
            )
        return self.checkers[0]

    @property
    def independent(self) -> bool | None:
        """Whether the values of an imported history are `[key value]` tuples
        (`harness.independent`).

        If so, each key is judged separately. `None` means that the shape of the values decides.
        """
        keyed = self.workload_options.get(_INDEPENDENT) if self.workload == IMPORTED else None
        return keyed if isinstance(keyed, bool) else None

    def __post_init__(self) -> None:
        if self.schema != CASE_SCHEMA:
            raise UsageError(
                f"the case has schema {self.schema}; this version of harness reads only schema "
                f"{CASE_SCHEMA}"
            )
        of_faults = ("interval_s", "duration_s")
        for name in (*of_faults, "time_limit_s", "rate", "concurrency", "op_timeout_s"):
            value = getattr(self, name)
            if not 0 < value < 1e9:
                raise UsageError(
                    f"{_flag(name)} is {value:g}; it must be more than 0 and below 1e9"
                )
        for name in of_faults:
            value = getattr(self, name)
            if value < FAULT_S_MIN:
                raise UsageError(f"{_flag(name)} is {value:g}; it must be at least {FAULT_S_MIN} s")
        if self.op_timeout_s > OP_TIMEOUT_S_MAX:
            raise UsageError(
                f"--op-timeout is {self.op_timeout_s:g}; it must be at most {OP_TIMEOUT_S_MAX:g}, "
                "so that faults outlast the operations that they affect"
            )
        if self.damage not in get_args(Damage):
            raise UsageError(
                f"--damage is {self.damage!r}; {choices_near(self.damage, get_args(Damage))}"
            )
        if not 0 <= self.draw <= DRAW_MAX:
            raise UsageError(f"--draw is {self.draw}; it must be in 0 .. {DRAW_MAX}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed is {self.seed}; it must be in 0 .. 2**63-1")

    def encode(self) -> bytes:
        """Return the case as canonical, human-readable JSON."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1) + b"\n"


def _flag(field: str) -> str:
    return f"--{field.removesuffix('_s').replace('_', '-')}"


def imported_case(model: str, *, independent: bool | None = None) -> Case:
    """Return the case of a history that another tool recorded; its only checker is `model`."""
    return Case(
        seed=0,
        target=IMPORTED,
        workload=IMPORTED,
        workload_options={} if independent is None else {_INDEPENDENT: independent},
        faults=(),
        checkers=(model,),
    )


def load_case(path: Path) -> Case:
    """Read a case file; raises `UsageError` with the position of the first mistake."""
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = "each run has its case in its folder, as case.json"
        if path.is_dir():
            hint = f"give {str(path / 'case.json')!r}"
        raise UsageError(
            f"cannot read the case file {str(path)!r}: {error.strerror}; {hint}"
        ) from error
    try:
        return msgspec.json.decode(data, type=Case)
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError, RecursionError) as error:
        raise UsageError(
            f"the case file {str(path)!r} is not a valid case file: {error}; "
            "write one with `harness run --dry-run`"
        ) from error


def replay_command(case_file: Path | str, environment: str | None) -> str:
    """Return the command that runs a case again; if `environment` is `None`, `harness run` chooses
    an environment.
    """
    where = [] if environment is None else ["--env", environment]
    return shlex.join(["harness", "run", *where, "--case", str(case_file)])


def stream(seed: int | str, label: str) -> random.Random:
    """Return the random stream for `label` in the run of this seed.

    Streams of different labels are independent. Equal seeds and labels give equal streams in every
    process.
    """
    digest = hashlib.blake2b(f"{seed}/{label}".encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))
