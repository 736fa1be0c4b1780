"""Columns of Arrow from Python's values.

`pyarrow.array` does the same, but first imports pandas, if installed, to check for pandas objects.
This takes half of the time of a short run, and there are no pandas objects here.
"""

from __future__ import annotations

import array
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_CODES: Final = {"int32": "i", "int64": "q"}
_TEXT_BYTES_MAX: Final = 2**31 - 1


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """An array of int32, int64 or string; `None` is null.

    Raises `TypeError` for values of another kind, `OverflowError` for numbers that are too large
    and `ValueError` for text that is not Unicode.
    """
    import numpy as np
    import pyarrow as pa

    absent = [value is None for value in values]
    valid = None
    if any(absent):
        valid = pa.py_buffer(np.packbits(~np.array(absent), bitorder="little"))
    if code := _CODES.get(str(kind)):
        numbers = array.array(code, (0 if value is None else value for value in values))
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(numbers)])
    encoded = [b"" if value is None else str.encode(value) for value in values]
    ends = list(itertools.accumulate(map(len, encoded), initial=0))
    if ends[-1] > _TEXT_BYTES_MAX:
        return pa.array(values, kind)  # in several pieces
    text = [pa.py_buffer(array.array("i", ends)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind, len(values), [valid, *text])
