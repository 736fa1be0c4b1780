"""Lists the folders of a store that may be runs (`NAME/ID/`, see `harness.store`).

Symbolic links and names that begin with a dot are not runs. A folder that cannot be listed becomes
a `Problem`. A soak's seed that left a case in `NAME/.soak/`, but no run, also becomes a problem.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from results.facts.problems import SEED_WITHOUT_RUN, Problem, Problems
from results.lake.log.refusals import failure_of, is_seen


def run_folders(store: Path, problems: Problems) -> Iterator[tuple[str, str, Path]]:
    """Yield every folder that may be a run, as (name, run, folder)."""
    names = _children(store, store, problems)
    if is_seen(store / ".soak"):  # `store` is the folder NAME of another store
        _seeds_without_runs(store, store.resolve().name, {*names}, problems)
    for name in names:
        above = store / name
        if is_seen(above / "case.json"):  # `store` is the folder NAME of another store
            yield store.resolve().name, name, above
            continue
        runs = _children(store, above, problems)
        _seeds_without_runs(above, name, {*runs}, problems)
        for run in runs:
            yield name, run, above / run


def _seeds_without_runs(above: Path, name: str, runs: AbstractSet[str], problems: Problems) -> None:
    """Report the seeds of soaks that left only a case (`harness.soak.campaign`)."""
    folder = above / ".soak"
    for path in sorted(folder.glob("*.case.json")) if is_seen(folder) else ():
        run = path.name.removesuffix(".case.json")
        if run not in runs:
            text = (
                "a soak's seed that left no run: the seed crashed, or its run could not be "
                "stored; replay it with `harness run --case {path}`"
            )
            problems.add(Problem(f"{name}/{run}", SEED_WITHOUT_RUN, text))


def _children(store: Path, folder: Path, problems: Problems) -> list[str]:
    where = str(folder.relative_to(store)) if folder != store else "."
    try:
        names = folders_in(folder)
    except OSError as error:
        if folder == store:
            raise failure_of(error, f"{str(store)!r} cannot be listed: {error.strerror}") from error
        problems.add(Problem(where, "history", f"cannot be listed: {error.strerror}"))
        return []
    readable = [name for name in names if _is_text(name)]
    if len(readable) < len(names):
        odd = next(name for name in names if not _is_text(name))
        text = f"holds a folder whose name is not UTF-8, {odd!a}; rename it"
        problems.add(Problem(where, "history", text))
    return readable


def folders_in(path: Path) -> list[str]:
    """Return the sorted names of subfolders, without hidden folders and links."""
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        )


def _is_text(name: str) -> bool:
    """Whether a file's name is UTF-8. Linux allows any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
