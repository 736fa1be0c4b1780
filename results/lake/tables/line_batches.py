"""Makes tables from the concatenated history lines of many runs, column by column.

`Batch` pairs invocations with their completions, and splits values into columns
(`results.lake.tables.values`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.errors import HistoryError
from harness.store.parquet import schema_of
from harness.vocabularies.kinds import READS
from harness.vocabularies.transactions import Txn, only_reads
from results.facts.intervals import Flags, Ints
from results.facts.operations import TYPES, is_no, turns, type_codes
from results.lake.tables.run_notes import RunNotes, notes_of, situations
from results.lake.tables.schema import schema
from results.lake.tables.sealed_run import Source
from results.lake.tables.values import ANSWERS, ASKS, EVENT_KINDS, EVENTS, outcome_of

_SEALED: Final = (*("index", "time", "process", "type", "f", "value", "error", "node", "attempts"),)
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder().decode


class Batch:
    """The concatenated history lines of some runs, and the positions of operations in them."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self._independent = np.array(
            [source.about.case.independent is True for source in sources], np.bool_
        )
        self.heads = heads_of(sources)
        self.lines = pa.concat_tables([_columns(source) for source in sources]).combine_chunks()
        lengths = [len(source.table) for source in sources]
        self.run = np.repeat(np.arange(len(sources)), lengths)
        self.index, self.time, self.process = (
            self.lines.column(name).to_numpy() for name in ("index", "time", "process")
        )
        rising = (self.index[1:] > self.index[:-1]) | (self.run[1:] != self.run[:-1])
        if not rising.all():
            at = int((~rising).argmax()) + 1
            raise HistoryError(
                f"{self._of(at)}: op {self.index[at]} follows op {self.index[at - 1]}: "
                "indices must rise"
            )
        kinds = type_codes(self.lines.column("type"))
        clients = np.flatnonzero(self.process >= 0)
        order = clients[np.lexsort((self.process[clients], self.run[clients]))]
        process, run = self.process[order], self.run[order]
        begin, ends, done = turns(
            self._of(0) if len(sources) == 1 else "one of these runs",
            self.index[order],
            process,
            kinds[order],
            (process[1:] == process[:-1]) & (run[1:] == run[:-1]),
        )
        place = np.argsort(order[begin])
        self.invoked = order[begin][place]
        self.done = done[place]
        self.completed = np.where(self.done, order[ends][place], 0) if len(order) else self.invoked
        self.kind = np.where(self.done, kinds[self.completed], TYPES.index("info"))
        self.noted_lines = np.flatnonzero(self.process < 0)
        self._n_attempts = pc.list_value_length(self._column("attempts")).to_numpy()
        ends = np.cumsum(lengths)
        self.noted: list[RunNotes] = notes_of(
            self.lines,
            self.noted_lines,
            self.run[self.noted_lines],
            [int(self.time[end - 1]) if n else 0 for end, n in zip(ends, lengths, strict=True)],
        )

    def _of(self, line: int) -> str:
        return self.sources[self.run[line]].key if len(self.run) else "the run"

    def _column(self, name: str) -> pa.Array:
        column = self.lines.column(name)
        return column.chunk(0) if column.num_chunks == 1 else pa.array([], column.type)

    def operations(self) -> pa.Table:
        """Make the table `operations`. Also set `self.answered`, which `counts` needs."""
        answers = pa.array(self.completed, mask=~self.done)
        at = pa.array(self.invoked)
        value = self._column("value")
        keys, asked, answered_with, unlike = self._keyed(value.take(at), value.take(answers))
        cut = cut_keys(keys, self.run[self.invoked], np.flatnonzero(self._independent).tolist())
        self._key_range, self._order, self._range_ops = cut
        answer_columns = ANSWERS.shred(answered_with)
        self.answered = self._answered(answer_columns[0], answer_columns[-1])
        phases, active = situations(self.noted, self.run[self.invoked], self.time[self.invoked])
        arrays = [
            pa.array(self.index[self.invoked]),
            pa.array(self.index[self.completed] - self.index[self.invoked], mask=~self.done),
            pa.array(self.process[self.invoked]),
            self._column("f").take(at),
            pa.array(TYPES).take(pa.array(self.kind)),
            pa.array(self.answered),
            self._reads(at, asked),
            pa.array(self.time[self.invoked]),
            pa.array(self.time[self.completed] - self.time[self.invoked], mask=~self.done),
            phases,
            active,
            self._column("node").take(answers),
            self._column("error").take(answers),
            keys,
            pa.array(self._key_range, mask=self._key_range < 0),
            *ASKS.shred(asked),
            *answer_columns,
            self._odd_operations(unlike),
        ]
        table = with_head("operations", self.heads, self.run[self.invoked], arrays)
        assert np.array_equal(table.column("index").to_numpy(), self.index[self.invoked])
        return table.take(pa.array(self._order)) if self._independent.any() else table

    def _keyed(
        self, asked: pa.Array, answers: pa.Array
    ) -> tuple[pa.Array, pa.Array, pa.Array, set[int]]:
        """Separate keys from values; return keys, requests, answers, and the positions `unlike`.

        `unlike` has the operations whose answer lacks the key of the request. An operation has a
        key if its request is a pair `[key, value]`. A transaction has a key only in a run over
        independent keys.
        """
        text = pa.string()
        kinds = self._column("f").take(pa.array(self.invoked))
        listed = pc.not_equal(kinds, Txn.f).to_numpy(zero_copy_only=False)
        listed = listed | self._independent[self.run[self.invoked]]
        listed = listed & pc.starts_with(asked, "[").to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(listed)
        if not len(rows):
            return pa.nulls(len(asked), text), asked, answers, set()
        keys: list[bytes | None] = [None] * len(asked)
        new_asked = asked.cast(pa.binary()).to_pylist()
        new_answers = answers.cast(pa.binary()).to_pylist()
        for row, pair in zip(
            rows.tolist(), pairs_of([new_asked[row] for row in rows]), strict=True
        ):
            if pair is not None:
                keys[row], new_asked[row] = pair
        unlike = {row for row in rows.tolist() if keys[row] and new_answers[row]}
        tuples = [row for row in sorted(unlike) if new_answers[row][:1] == b"["]
        for row, pair in zip(tuples, pairs_of([new_answers[row] for row in tuples]), strict=True):
            if pair is not None and pair[0] == keys[row]:
                new_answers[row] = pair[1]
                unlike.remove(row)
        columns = (keys, new_asked, new_answers)
        return *(pa.array(column, pa.binary()).cast(text) for column in columns), unlike

    def _answered(self, result: pa.Array, rest: pa.Array) -> Flags:
        failed = self.done & (self.kind == TYPES.index("fail"))
        answered: Flags = self.done & (self.kind == TYPES.index("ok"))
        answered |= failed & _present(result)
        rows = np.flatnonzero(failed & ~answered & _present(rest))
        coded = rest.take(pa.array(rows)).dictionary_encode()
        noes = np.array([is_no(_decode(text)) for text in coded.dictionary.to_pylist()], np.bool_)
        answered[rows] = noes[coded.indices.to_numpy()] if len(rows) else False
        return answered

    def _reads(self, at: pa.Array, asked: pa.Array) -> pa.Array:
        fs = self._column("f").take(at)
        reads = pc.is_in(fs, value_set=pa.array(sorted(READS)))
        rows = np.flatnonzero(pc.equal(fs, Txn.f).to_numpy(zero_copy_only=False))
        if not len(rows):
            return reads
        flags = reads.to_numpy(zero_copy_only=False).copy()
        flags[rows] = [only_reads(_decode(text)) for text in asked.take(pa.array(rows)).to_pylist()]
        return pa.array(flags)

    def _odd_operations(self, unlike: set[int]) -> pa.Array:
        """Encode parts of operations that have no column, such as an invocation's error."""
        has = _present(self._column("error")) | _present(self._column("node"))
        has |= self._n_attempts > 0
        codes = self._column("f").dictionary_encode().indices.to_numpy()
        renamed = self.done & (codes[self.invoked] != codes[self.completed])
        rows = sorted({*np.flatnonzero(has[self.invoked] | renamed).tolist(), *unlike})
        odd: list[str | None] = [None] * len(self.invoked)
        for row in rows:
            parts: dict[str, Any] = self._parts(int(self.invoked[row]))
            if renamed[row]:
                parts["f"] = self._column("f")[int(self.completed[row])].as_py()
            if row in unlike:
                parts["whole"] = True
            odd[row] = _encode(parts).decode()
        return pa.array(odd, pa.string())

    def _parts(self, line: int) -> dict[str, Any]:
        """Return a line's error, node and attempts, as far as present. Most lines have none."""
        parts = {name: self._column(name)[line].as_py() for name in ("error", "node", "attempts")}
        return {name: part for name, part in parts.items() if part is not None and part != []}

    def attempts(self) -> pa.Table:
        """Make the table `attempts`, from the lists of attempts in completions."""
        ops = np.flatnonzero(self.done)
        lines = self.completed[ops]
        lengths = self._n_attempts[lines]
        row, lines_of = np.repeat(ops, lengths), np.repeat(lines, lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        flat = self._column("attempts").take(pa.array(lines)).flatten()
        arrays = [
            pa.array(self.index[self.invoked[row]]),
            pa.array((np.arange(len(row)) - starts).astype(np.int32)),
            flat.field("node"),
            pa.array(flat.field("start").to_numpy() - self.time[self.invoked[row]]),
            pa.array(self.time[lines_of] - flat.field("end").to_numpy()),
            *_outcomes(flat.field("outcome"), self._column("error").take(pa.array(lines_of))),
            pa.array(self._key_range[row], mask=self._key_range[row] < 0),
        ]
        self._attempt_runs = self.run[self.invoked[row]]
        self._attempt_nodes = flat.field("node")
        self._attempt_ok = flat.field("outcome")
        table = with_head("attempts", self.heads, self._attempt_runs, arrays)
        if not self._independent.any():
            return table
        return table.take(pa.array(np.argsort(np.argsort(self._order)[row], kind="stable")))

    def tried(self) -> list[dict[str, tuple[int, int]]]:
        """Return, per run, a map from nodes to the numbers of all attempts and of ok attempts."""
        counts: list[dict[str, tuple[int, int]]] = [{} for _ in self.sources]
        if not len(self._attempt_runs):
            return counts
        coded = self._attempt_nodes.dictionary_encode()
        names = coded.dictionary.to_pylist()
        cells = self._attempt_runs * len(names) + coded.indices.to_numpy()
        n = np.bincount(cells)
        ok = np.bincount(cells, pc.equal(self._attempt_ok, "ok").cast("int64").to_numpy())
        for cell in np.flatnonzero(n).tolist():
            counts[cell // len(names)][names[cell % len(names)]] = int(n[cell]), int(ok[cell])
        return counts

    def counts(self) -> list[dict[str, Any]]:
        """Count each run's lines and operations, and operations by outcome and by key range."""

        def each(flags: Flags | None = None) -> Ints:
            runs = self.run[self.invoked] if flags is None else self.run[self.invoked[flags]]
            return np.bincount(runs, minlength=len(self.sources))

        columns = {
            "lines": np.bincount(self.run, minlength=len(self.sources)),
            "ops": each(),
            "refused": each(self.answered & (self.kind == TYPES.index("fail"))),
        }
        columns |= {name: each(self.kind == number) for number, name in enumerate(TYPES)}
        return [
            {name: int(column[number]) for name, column in columns.items()}
            | {"key_ranges": self._range_ops.get(number, [])}
            for number in range(len(self.sources))
        ]

    def events(self) -> pa.Table:
        """Make the table `events`, from the ops of nemesis and harness that are not in `faults`."""
        kept = np.ones(len(self.noted_lines), np.bool_)
        first = 0
        for notes in self.noted:
            for place in notes.in_faults:
                kept[first + place] = False
            first += notes.lines
        lines = self.noted_lines[kept]
        at = pa.array(lines)
        has = _present(self._column("node")) | (self._n_attempts > 0)
        odd = [
            _encode({name: part for name, part in self._parts(line).items() if name != "error"})
            if has[line]
            else None
            for line in lines.tolist()
        ]
        fs = self._column("f").take(at)
        value = self._column("value")
        typed = pc.is_in(fs, value_set=pa.array(EVENT_KINDS))
        *columns, rest = EVENTS.shred(
            value.take(pa.array(lines, mask=~typed.to_numpy(zero_copy_only=False)))
        )
        arrays = [
            pa.array(self.index[lines]),
            pa.array(self.time[lines]),
            pa.array(self.process[lines]),
            self._column("type").take(at),
            fs,
            self._column("error").take(at),
            *columns,
            pc.if_else(typed, rest, value.take(at)),
            pa.array(odd, pa.binary()).cast(pa.string()),
        ]
        return with_head("events", self.heads, self.run[lines], arrays)


def _columns(source: Source) -> pa.Table:
    table, wanted = source.table, _sealed()
    for name in ("index", "time", "process", "type", "f", "value"):
        if table.column(name).null_count:
            raise HistoryError(f"{source.key} holds a row that is not an op: its {name} is null")
    chosen = table.select(wanted.names)
    return chosen if chosen.schema.equals(wanted) else chosen.cast(wanted)


@functools.cache
def _sealed() -> pa.Schema:
    return pa.schema([schema_of().field(name) for name in _SEALED])


def _outcomes(said: pa.Array, errors: pa.Array) -> list[pa.Array]:
    coded, of = said.dictionary_encode(), errors.dictionary_encode()
    texts, whole = coded.dictionary.to_pylist(), [*of.dictionary.to_pylist(), None]
    pairs = coded.indices.to_numpy() * len(whole) + of.indices.fill_null(len(whole) - 1).to_numpy()
    distinct, places = np.unique(pairs, return_inverse=True)
    apart = [outcome_of(texts[n // len(whole)], whole[n % len(whole)]) for n in distinct.tolist()]
    columns = zip(*apart, strict=True) if apart else ((), ())
    return [pa.array(column, pa.string()).take(pa.array(places)) for column in columns]


def _present(column: pa.Array) -> Flags:
    flags: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return flags


def heads_of(sources: Sequence[Source]) -> tuple[pa.Array, ...]:
    """Return the leading columns for rows of these runs: the partition and the run."""
    columns = zip(
        *((each.about.case.system, each.about.label, each.about.day, each.key) for each in sources),
        strict=True,
    )
    return tuple(
        pa.array(values, field.type) for values, field in zip(columns, schema("runs"), strict=False)
    )


def with_head(
    name: str,
    heads: Sequence[pa.Array],
    run: Ints,
    arrays: Sequence[pa.Array],
) -> pa.Table:
    """Make a table of `heads` and `arrays`. `run` has, for each row, the index of its run."""
    rows = pa.array(run)
    return pa.Table.from_arrays(
        [*(head.take(rows) for head in heads), *arrays], schema=schema(name)
    )


KEY_RANGE_OPS: Final = 1 << 15
"""Approximate number of operations in a range of keys. A checker takes 1 to 2 s for a range."""
_decode_pairs: Final = msgspec.json.Decoder(list[tuple[msgspec.Raw, msgspec.Raw]]).decode


def pairs_of(texts: Sequence[bytes]) -> list[tuple[bytes, bytes] | None]:
    """Split each JSON list of two into its two parts. Return `None` in place of other JSON."""
    try:
        pairs = _decode_pairs(b"[" + b",".join(texts) + b"]")
        return [(bytes(first), bytes(other)) for first, other in pairs]
    except msgspec.ValidationError:
        if len(texts) == 1:
            return [None]
    middle = len(texts) // 2
    return pairs_of(texts[:middle]) + pairs_of(texts[middle:])


def cut_keys(
    keys: pa.Array, run: Ints, independent: Sequence[int]
) -> tuple[npt.NDArray[np.int32], Ints, dict[int, list[int]]]:
    """Cut the operations of runs over `independent` keys into ranges of whole keys.

    Return the range of each operation (-1 in runs without independent keys), the order of
    operations by run and key, and, for each run, the number of operations in each range. Raises
    `HistoryError` for an operation without a key.
    """
    rank = np.zeros(len(run), np.int64)
    key_range = np.full(len(run), -1, np.int32)
    operations: dict[int, list[int]] = {}
    for number in independent:
        rows = np.flatnonzero(run == number)
        coded = keys.take(pa.array(rows)).dictionary_encode()
        if coded.null_count:
            raise HistoryError("an operation has no key, in a run over independent keys")
        names = coded.dictionary.to_pylist()
        ranks = np.empty(len(names), np.int64)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        rank[rows] = ranks[coded.indices.to_numpy()]
        sizes = np.bincount(rank[rows])
        ranges = max(1, round(len(rows) / KEY_RANGE_OPS))
        _, of_key = np.unique(
            (np.cumsum(sizes) - sizes) * ranges // max(1, len(rows)), return_inverse=True
        )
        key_range[rows] = of_key[rank[rows]]
        operations[number] = np.bincount(key_range[rows]).tolist()
    return key_range, np.lexsort((rank, run)), operations
