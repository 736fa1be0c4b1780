"""The lake: runs of many workers in Delta tables, on local disks or object storage.

`schema` says what the tables are and `lake` keeps them; `source` reads a run of a store, `rows`
makes rows of many at once, `rebuild` runs of rows; `ingest` and `export` move whole stores.
"""

from results.lake.tables.rebuild import case_of, history_of, record_of
from results.lake.tables.row_tables import rows_of
from results.lake.tables.schema import SCHEMA_VERSION, schemas

__all__ = [
    "SCHEMA_VERSION",
    "case_of",
    "history_of",
    "record_of",
    "rows_of",
    "schemas",
]
