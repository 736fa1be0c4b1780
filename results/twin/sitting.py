"""Makes the runs of a comparison, alternately on both sides. Stored runs are reused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case, load_case
from harness.errors import UsageError
from harness.plan.planning import Plan
from harness.plugins import Environment
from harness.run.keep import run_and_keep
from harness.run.starting import explaining_start
from harness.soak.identity import code_digest
from harness.store import RunFolder, RunRecord, new_run_id
from results.twin.observed import Observed, observe
from results.twin.sides import Sides

FOLDERS_MAX: Final = 10_000
Note = Callable[[str], None]


def sit(
    sides: Sides,
    environments: tuple[Environment, Environment],
    store: Path,
    *,
    note: Note,
    time_limit_s: float,
    any_code: bool = False,
) -> Iterator[tuple[int, Observed]]:
    """Yield each run with its side (0 or 1), after making the runs that the store lacks.

    The sides take turns, so that other load on the machine slows down both. A stored run is reused
    if the present version of the code made it; with `any_code`, if any version made it.
    """
    for plans in sides.plans:
        for side, plan in enumerate(plans):
            environment = environments[side]
            name = f"twin-{sides.name}-{plan.case.target}"[:100]
            code = code_digest(plan.case, environment.name)
            kept = find_run(
                store / name, plan.case, environment.name, code=None if any_code else code
            )
            if kept is None:
                note(f"{sides.name}: {plan.case.target}, seed {plan.case.seed}")
                folder = RunFolder(store, name, new_run_id(plan.case.seed))
                _run(plan, environment, folder, note=note, time_limit_s=time_limit_s, code=code)
                kept = folder.path
            yield side, observe(kept)


def find_run(folder: Path, case: Case, environment: str, *, code: str | None) -> Path | None:
    """Return the newest finished run of exactly this case, or `None`.

    With `code`, only runs of this version of the code count.
    """
    if not folder.is_dir():
        return None
    runs = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    for path in reversed(runs[-FOLDERS_MAX:]):
        try:
            record = msgspec.json.decode((path / "run.json").read_bytes(), type=RunRecord)
            same = record.environment == environment and not record.interrupted
            same = same and code in {None, record.versions.get("code")}
            if same and load_case(path / "case.json") == case:
                return path
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, UsageError):
            continue  # a folder of another tool, or a run that was cut short
    return None


def _run(
    plan: Plan,
    environment: Environment,
    folder: RunFolder,
    *,
    note: Note,
    time_limit_s: float,
    code: str,
) -> None:
    with explaining_start(plan):
        environment.prepare_nodes(plan.nodes, note)
        kept = run_and_keep(
            plan,
            environment,
            folder,
            run_id=folder.run_id,
            time_limit_s=time_limit_s,
            code=code,
        )
    kept.require_kept()
