"""A store as pandas tables, for notebooks: `results.load("store", label="v2")`.

What is cheap is there at once: a row a run, from two small files each. Operations are read when
they are asked for, of as many runs as fit a bound, and a table that would not fit is refused rather
than cut: a mean over half of the rows looks like any other. Runs that cannot be read are left out
with a warning, and named in `problems`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.case import Case
from harness.errors import HarnessError, UsageError
from harness.ops import History
from harness.store import load_run
from results.run_index import BROKEN, RunRow, ScanCache, read_bounded, scan
from results.serve.query import (
    EXACT,
    LIST_SEPARATOR,
    LISTS,
    NONE,
    RANGES,
    BadQuery,
    Query,
    matching,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OPS_MAX", "Runs", "load"]

OPS_MAX: Final = 2_000_000
"""Operations in one table: about 1 GB of memory, most of it values."""
REPORT_TABLES: Final = Path(".report") / "tables"
_WARNED_MAX: Final = 5
_FILTERS: Final = ("q", "day", *EXACT, *LISTS, *RANGES)
_DTYPES: Final = {
    "seed": "Int64", "ops": "Int64", "faults": "Int64", "wall_s": "Float64",
    "simulated_s": "Float64", "interrupted": "boolean", "interval_s": "Float64",
    "duration_s": "Float64", "time_limit_s": "Float64", "rate": "Float64", "concurrency": "Int64",
    "op_timeout_s": "Float64",
}  # fmt: skip
_TEXTS: Final = (
    *("run", "name", "id", "verdict", "problem", "label", "environment", "target", "profile"),
    *("workload", "digest", "versions", "folder"),
)
_MORE_OF_CASE: Final = (
    *("interval_s", "duration_s", "time_limit_s", "rate", "concurrency", "op_timeout_s"),
    *("target_options", "workload_options", "knobs"),
)


def load(store: str | Path, **filters: str | int | Sequence[str] | None) -> Runs:
    """The runs of a store, or those that pass all `filters`; raises `UsageError` for unknown ones.

    Filters are the parameters of `harness serve`: `label="v2"`, `nemesis="kill-leader"`,
    `verdict="invalid"`, `seed="1..200"`, `bugs=["NO-LEASE"]` for exactly these, `label=None` for
    runs without one, `q="words"`.
    """
    texts: dict[str, str] = {}
    for name, value in filters.items():
        if name not in _FILTERS:
            known = ", ".join(sorted(_FILTERS))
            raise UsageError(f"there is no filter {name!r}; there are {known}")
        texts[name] = _text(value)
    folder = Path(store)
    try:
        rows = matching(scan(folder, ScanCache()).rows, Query(texts))
    except BadQuery as error:
        raise UsageError(str(error)) from error
    return Runs(folder, sorted(rows, key=lambda row: (row.started, row.key)))


def _text(value: str | int | Sequence[str] | None) -> str:
    if value is None:
        return NONE
    if isinstance(value, (str, int)):
        return str(value)
    return LIST_SEPARATOR.join(value) or NONE


class Runs:
    """Some runs of a store, the oldest first. `problems` says which could not be read, and why."""

    def __init__(self, store: Path, rows: Sequence[RunRow]) -> None:
        """Use `load`."""
        self.store = store
        self.problems: dict[str, str] = {
            row.key: row.problem or "" for row in rows if row.outcome == BROKEN
        }
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        """The names of the runs, as in the column `run`."""
        return (row.key for row in self._rows)

    def __repr__(self) -> str:
        return f"<Runs of {str(self.store)!r}: {len(self._rows)}, {len(self.problems)} broken>"

    @functools.cached_property
    def runs(self) -> pd.DataFrame:
        """A row a run: everything that `case.json` and `run.json` say but the planned faults."""
        _need_pandas()
        import pandas as pd

        rows = [self._fields(row) for row in self._rows]
        names = [
            *("run", "name", "id", "verdict", "problem", "started", "label", "environment"),
            *("target", "profile", "workload", "nemeses", "bugs", "seed", "faults", "ops"),
            *("wall_s", "simulated_s", "interrupted", "digest", "versions", *_MORE_OF_CASE),
            "folder",
        ]
        columns: dict[str, pd.Series[Any]] = {}
        for name in names:
            values = [row.get(name) for row in rows]
            if name == "started":
                columns[name] = pd.to_datetime(pd.Series(values, dtype="object"), utc=True)
            else:
                kind = "string" if name in _TEXTS else _DTYPES.get(name, "object")
                columns[name] = pd.Series(values, dtype=kind)
        return pd.DataFrame(columns)

    def _fields(self, row: RunRow) -> dict[str, Any]:
        found = msgspec.structs.asdict(row) | {
            "run": row.key,
            "id": row.run,
            "verdict": row.outcome,
            "started": row.started or None,
            "folder": str(self._folder(row)),
        }
        for name in ("environment", "target", "profile", "workload", "digest", "versions"):
            found[name] = found[name] or None
        if row.seed is not None:
            try:
                content = read_bounded(self._folder(row) / "case.json")
                case = msgspec.json.decode(content, type=Case)
            except (OSError, ValueError, UsageError, RecursionError) as error:
                self.problems[row.key] = f"case.json: {error}"
            else:
                found |= {name: getattr(case, name) for name in _MORE_OF_CASE}
        return found

    def ops(
        self,
        runs: Iterable[str] | None = None,
        *,
        f: str | None = None,
        rows_max: int = OPS_MAX,
    ) -> pd.DataFrame:
        """The operations of these runs (default: all), as `History.to_pandas`, with a column `run`.

        `f` keeps one kind of operation. Raises `UsageError` where there would be more than
        `rows_max` rows.
        """
        _need_pandas()
        import pandas as pd

        parts: list[pd.DataFrame] = []
        count = 0
        for key, history in self.histories(runs):
            part = history.to_pandas()
            if f is not None:
                part = part[part["f"] == f]
            count += len(part)
            if count > rows_max:
                raise UsageError(
                    f"these runs have more than {rows_max} operations; name fewer runs or a kind "
                    "of operation, or raise rows_max"
                )
            part.insert(0, "run", pd.Series(key, index=part.index, dtype="string"))
            parts.append(part)
        if not parts:
            parts = [History(()).to_pandas()]
            parts[0].insert(0, "run", pd.Series([], dtype="string"))
        return pd.concat(parts, ignore_index=True)

    def histories(self, runs: Iterable[str] | None = None) -> Iterator[tuple[str, History]]:
        """Each of these runs (default: all) with its history, read one after the other."""
        by_key = {row.key: row for row in self._rows}
        failed: dict[str, str] = {}
        for key in by_key if runs is None else runs:
            if key not in by_key:
                raise UsageError(f"the run {key!r} is not among these {len(by_key)}")
            if by_key[key].outcome == BROKEN:
                failed[key] = self.problems[key]
                continue
            try:
                history = load_run(self._folder(by_key[key])).history
            except HarnessError as error:
                failed[key] = self.problems[key] = str(error)
                continue
            yield key, history
        _warn(failed)

    def facts(self, table: str) -> pd.DataFrame:
        """A table that `harness report` left for these runs, such as `windows` or `verdicts`.

        Raises `UsageError` that names those that there are.
        """
        _need_pandas()
        there = self.tables
        if table not in there:
            known = ", ".join(there) or f"none: run `harness report {self.store}` first"
            raise UsageError(f"there is no table {table!r}; there are {known}")
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            found = pq.read_table(
                self.store / REPORT_TABLES / f"{table}.parquet",
                filters=[("run", "in", {row.key for row in self._rows})] if self._rows else None,
            )
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"the table {table!r} cannot be read: {error}") from error
        frame: pd.DataFrame = (found if self._rows else found.slice(0, 0)).to_pandas()
        return frame

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables that `harness report` left in the store."""
        found = (self.store / REPORT_TABLES).glob("*.parquet")
        return tuple(sorted(path.stem for path in found))

    def _folder(self, row: RunRow) -> Path:
        return self.store / row.name / row.run


def _warn(failed: Mapping[str, str]) -> None:
    if failed:
        first = "; ".join(f"{key}: {why}" for key, why in list(failed.items())[:_WARNED_MAX])
        warnings.warn(f"{len(failed)} runs are left out: {first}", stacklevel=3)


def _need_pandas() -> None:
    try:
        import pandas as pd  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise UsageError("this needs pandas: pip install 'catalog-harness[report]'") from error
