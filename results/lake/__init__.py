"""The lake: tables of many runs that any number of writers append to and anybody may read.

`schema` says what the tables are; `source` reads a run of a store, `rows` makes rows of many at
once, `rebuild` runs of rows; `ingest` and `export` move whole stores.
"""

from results.lake.rebuild import case_of, history_of, record_of
from results.lake.rows import rows_of
from results.lake.schema import SCHEMA_VERSION, completed, schemas

__all__ = [
    "SCHEMA_VERSION",
    "case_of",
    "completed",
    "history_of",
    "record_of",
    "rows_of",
    "schemas",
]
