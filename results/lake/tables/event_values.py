"""What nemesis and harness noted, as columns of `events`: typed fields, and packed large notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from results.lake.tables.packed import PACKED_BYTES_MIN, Answered, answered, pack
from results.lake.tables.value_codecs import EVENT_KINDS, EVENTS

if TYPE_CHECKING:
    import pyarrow as pa

    from results.facts.intervals import Ints

__all__ = ["Answers", "event_values"]

_REST_BYTES_MIN: Final = 200
"""What answers with ids have, such as tablets with their replicas."""


class Answers(NamedTuple):
    """What the operations of some runs were answered; `runs` rise."""

    runs: Ints
    indices: Ints
    table_ids: pa.Array
    rests: pa.Array


def event_values(
    fs: pa.Array, values: pa.Array, lines: Ints, run: Ints, answers: Answers
) -> list[pa.Array]:
    """Values of the events at `lines` of `values`, each of a run of `run` and of a kind of `fs`.

    Those of kinds with typed fields are taken apart, the others are all rest. Of these the large
    ones are packed; behind the rest come their ids.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = values.cast(pa.binary())
    typed = pc.is_in(fs, value_set=pa.array(EVENT_KINDS)).to_numpy(zero_copy_only=False)
    lengths = pc.binary_length(texts).to_numpy()[lines]
    columns = EVENTS.shred(values.take(pa.array(lines, mask=~typed)))
    rests = columns.pop().cast(pa.binary()).to_pylist()
    small = np.flatnonzero(~typed & (lengths < PACKED_BYTES_MIN))
    for place, text in zip(
        small.tolist(), texts.take(pa.array(lines[small])).to_pylist(), strict=True
    ):
        rests[place] = text
    news: list[list[bytes] | None] = [None] * len(lines)
    large = np.flatnonzero(~typed & (lengths >= PACKED_BYTES_MIN))
    notes = _views(texts, lines[large])
    for place, note in zip(
        large.tolist(), pack(notes, run[large], _answered_ids(answers)), strict=True
    ):
        rests[place], news[place] = note
    return [
        *columns,
        pa.array(rests, pa.binary()).cast(pa.string()),
        pa.array(news, pa.list_(pa.binary())).cast(pa.list_(pa.string())),
    ]


def _views(texts: pa.Array, places: Ints) -> list[memoryview]:
    """Some of many texts where they lie: large ones are not copied."""
    import numpy as np

    _, offsets, content = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset :]
    whole = memoryview(content) if content is not None else memoryview(b"")
    return [
        whole[begin:end]
        for begin, end in zip(bounds[places].tolist(), bounds[places + 1].tolist(), strict=True)
    ]


def _answered_ids(answers: Answers) -> Answered:
    """Those of tables, by the first operation that was answered each; and those in large rests."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    run, index, table_ids, rests = answers
    coded = table_ids.dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy()
    rows = np.flatnonzero(codes >= 0)
    cells = run[rows] * len(coded.dictionary) + codes[rows]
    first = rows[np.unique(cells, return_index=True)[1]]
    tables = coded.dictionary.cast(pa.binary()).take(pa.array(codes[first])).to_pylist()
    large = pc.greater_equal(pc.binary_length(rests), _REST_BYTES_MIN).fill_null(False)
    rows = np.flatnonzero(large.to_numpy(zero_copy_only=False))
    texts = rests.cast(pa.binary()).take(pa.array(rows)).to_pylist()
    return answered((run[first], index[first], tables), (run[rows], index[rows], texts))
