"""The runs of a lake in memory: a block of columns a file of its table `runs`, kept up to date.

A file never changes. So when the lake's version moves, files that are new are read, blocks of
files that a compaction replaced go, and the table is put together again. That happens beside the
pages: they show the table that there is, and wait for a newer one only a moment. A lake that does
not answer costs nothing but news, and the table says since when. Blocks and table together take
about 0.8 kB a run.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.errors import HarnessError, InfrastructureError
from results.facts.schema import LIST_SEPARATOR
from results.facts.setting import code_of
from results.lake.log.delta import State
from results.lake.log.files import KEY, LOG_FOLDER, MAIN, FileRef
from results.lake.log.lake import Lake
from results.lake.log.run_streams import conforming
from results.lake.log.storage_errors import Patience, troubles
from results.lake.tables.schema import schema
from results.serve.run_index import UNFINISHED, cut, versions_text
from results.serve.run_table import RunTable, Texts

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["QUICK", "LakeIndex"]

LOOK_EVERY_S: Final = 2.0
LOOK_REST: Final = 10.0
FAILED_REST_S: Final = 15.0
WAIT_S: Final = 2.0
"""How long a page waits for news."""
QUICK: Final = Patience(attempts_max=4, total_s=5.0)
"""Somebody waits for a page."""
THREADS: Final = 8
CUT_SHORT: Final = "cut short or still running when it was taken: it has no record"
_LISTS: Final = ("nemeses", "bugs")
_SAME: Final = (
    *("name", "label", "environment", "target", "profile", "workload", "setting", "signature"),
)
_FROM: Final = {"checker": "failure_checker", "reason": "failure_reason"}
_COLUMNS: Final = (
    *(KEY, *_SAME, *_LISTS, *_FROM.values(), "versions", "verdict", "finished"),
    *("digest", "started", "seed", "lines", "faults", "wall_s", "simulated_s", "interrupted"),
    *("ok", "length_ns"),
)
_TEXTS: Final = frozenset({*_SAME, *_LISTS, *_FROM.values(), "versions", "verdict"})
_NS_PER_S: Final = 1_000_000_000


class LakeIndex:
    """The table of all runs of a lake."""

    def __init__(self, lake: Lake, lock: threading.Lock) -> None:
        """Read it; raises as the lake does. `lock` is held while the lake itself is used."""
        self._lake = lake
        self._lock = lock
        self._blocks: dict[str, pa.Table] = {}
        self.version = -1
        self._table = _table_of([])
        self._looking = threading.Lock()
        self._looked = threading.Event()
        self._read()
        self._next_s = time.monotonic() + LOOK_EVERY_S

    def table(self) -> RunTable:
        """What the lake has; as it was a moment ago, or when it answered last."""
        if time.monotonic() >= self._next_s and self._looking.acquire(blocking=False):
            self._looked.clear()
            threading.Thread(target=self._look, daemon=True).start()
            self._looked.wait(WAIT_S)
        return self._table

    def _look(self) -> None:
        began_s = time.monotonic()
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - whatever it is, the pages say it and go on
            told = error if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
            now = dt.datetime.now(dt.UTC)
            self._table = self._table.noting(
                f"the lake cannot be read ({told}); this is what it held before {now:%H:%M:%S} UTC"
            )
            rest_s = FAILED_REST_S
        else:
            rest_s = max(LOOK_EVERY_S, (time.monotonic() - began_s) * LOOK_REST)
        finally:
            self._next_s = time.monotonic() + rest_s
            self._looked.set()
            self._looking.release()

    def _read(self) -> None:
        """Bring the table up to date."""
        import pyarrow as pa

        with self._lock:
            state = QUICK.call(f"read {self._lake.main.uri}", self._state)
        if state.version != self.version:
            new = [file for name, file in state.files.items() if name not in self._blocks]
            kept = {name: block for name, block in self._blocks.items() if name in state.files}
            if new or len(kept) != len(self._blocks):
                blocks = kept | dict(zip((file.name for file in new), self._all(new), strict=True))
                self._table = _table_of(list(blocks.values()))
                self._blocks = blocks
                pa.default_memory_pool().release_unused()  # a quarter of what was needed
            self.version = state.version
        self._table = self._table.noting()

    def _state(self) -> State:
        """The newest state of `runs`; a log that is gone would say that nothing is new."""
        from pyarrow.fs import FileType

        place = self._lake.place
        with troubles(place.uri):
            found = place.files.get_file_info(f"{MAIN}/{LOG_FOLDER}")
        if found.type == FileType.NotFound:
            raise InfrastructureError(f"{place.uri} has no table of runs any more")
        return self._lake.main.refresh()

    def _all(self, files: Sequence[FileRef]) -> list[pa.Table]:
        if self._lake.place.local:
            return [self._block(file) for file in files]
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(self._block, files))

    def _block(self, file: FileRef) -> pa.Table:
        """The columns of one file; those that an older one lacks are null."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        layout = pa.schema([schema(MAIN).field(name) for name in _COLUMNS])
        with (
            troubles(file.uri),
            self._lake.place.files.open_input_file(f"{MAIN}/{file.name}") as source,
        ):
            parquet = pq.ParquetFile(source)
            there = [name for name in _COLUMNS if name in parquet.schema_arrow.names]
            batches = parquet.iter_batches(columns=there)
            rows = pa.Table.from_batches([conforming(rows, layout) for rows in batches], layout)
        for name in _TEXTS:
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, rows[name].dictionary_encode())
        return rows


def _table_of(blocks: Sequence[pa.Table]) -> RunTable:
    """All blocks as one table, newest first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    layout = pa.schema([schema(MAIN).field(name) for name in _COLUMNS])
    rows = pa.concat_tables([*blocks]) if blocks else layout.empty_table()
    rows = rows.unify_dictionaries().combine_chunks()
    by = [("started", "descending", "at_end"), (KEY, "descending", "at_end")]
    rows = rows.take(pc.sort_indices(rows, sort_keys=by))
    texts = {name: _coded(rows[_FROM.get(name, name)]) for name in (*_SAME, *_FROM)}
    finished = pc.fill_null(rows["finished"], False)
    outcome = pc.if_else(finished, rows["verdict"].cast(pa.string()), UNFINISHED)
    texts["outcome"] = _coded(outcome.dictionary_encode())
    problem = pc.if_else(finished, "", CUT_SHORT)
    texts["problem"] = _coded(problem.dictionary_encode())
    for name in _LISTS:
        texts[name] = _lists(rows[name])
    versions, known = rows["versions"], _versions(rows["versions"])
    texts["versions"] = _coded(versions, {text: versions_text(of) for text, of in known.items()})
    texts["code"] = _coded(versions, {text: code_of(of) or "" for text, of in known.items()})
    texts["run"] = Texts(_one(pc.replace_substring_regex(rows[KEY], "^[^/]*/", "")))
    texts["digest"] = Texts(_one(pc.fill_null(rows["digest"], "")))
    texts["started"] = Texts(_one(_iso(rows["started"])))
    numbers = {
        name: _one(rows[column])
        for name, column in (
            *(("seed", "seed"), ("ops", "lines"), ("faults", "faults")),
            *(("wall_s", "wall_s"), ("simulated_s", "simulated_s")),
        )
    }
    length_s = pc.divide(pc.cast(rows["length_ns"], pa.float64()), _NS_PER_S)
    rate = pc.divide(pc.cast(rows["ok"], pa.float64()), length_s)
    numbers["ok_per_s"] = _one(
        pc.if_else(pc.greater(length_s, 0.0), rate, pa.scalar(None, pa.float64()))
    )
    interrupted = pc.fill_null(_one(rows["interrupted"]), False)
    return RunTable(texts, numbers, interrupted.to_numpy(zero_copy_only=False))


def _one(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    made = column.combine_chunks()
    if isinstance(made, pa.ChunkedArray):  # of no chunk at all
        made = pa.concat_arrays(made.chunks) if made.num_chunks else pa.array([], made.type)
    return made


def _coded(column: pa.ChunkedArray, words: dict[str, str] | None = None) -> Texts:
    """A column of few different texts, each within its bound; `words` are shown in their place."""
    values, codes = _split(column)
    return _remade([cut(text if words is None else words.get(text, "")) for text in values], codes)


def _lists(column: pa.ChunkedArray) -> Texts:
    values, codes = _split(column)
    lists = [tuple(map(cut, text.split(LIST_SEPARATOR))) if text else () for text in values]
    made = Texts.of_lists(lists)
    assert made.codes is not None
    return Texts(made.values, made.codes[codes], made.lists)


def _remade(texts: Sequence[str], codes: Any) -> Texts:
    """Texts by code, some of which may be equal."""
    made = Texts.of(texts)
    assert made.codes is not None
    return Texts(made.values, made.codes[codes])


def _split(column: pa.ChunkedArray) -> tuple[list[str], Any]:
    """The values of a dictionary, with the empty text for null, and the code of each run."""
    import pyarrow as pa

    array = _one(column)
    if not isinstance(array, pa.DictionaryArray):
        array = array.dictionary_encode()
    values = array.dictionary.to_pylist()
    indices = array.indices
    if indices.null_count:
        indices = indices.fill_null(len(values))
        values.append("")
    return values, indices.to_numpy(zero_copy_only=False).astype("int64")


def _versions(column: pa.ChunkedArray) -> dict[str, dict[str, str]]:
    """What the records say of versions, by their JSON."""
    found: dict[str, dict[str, str]] = {}
    for text in _split(column)[0]:
        try:
            found[text] = msgspec.json.decode(text, type=dict[str, str])
        except (msgspec.MsgspecError, RecursionError):
            found[text] = {}
    return found


def _iso(started: pa.ChunkedArray) -> pa.ChunkedArray:
    """As a store's record has them: ISO 8601, in UTC, microseconds only where there are any."""
    import pyarrow.compute as pc

    text = pc.strftime(started, format="%Y-%m-%dT%H:%M:%S")
    plain = pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.fill_null(pc.binary_join_element_wise(plain, "+00:00", ""), "")
