"""Reads histories of the harness and of other tools; recognises the format by the file's content.

| format         | what                                                      | model by default  |
|----------------|-----------------------------------------------------------|-------------------|
| parquet        | our sealed histories                                      | by its operations |
| porcupine-etcd | log lines of Jepsen's tests of etcd, as Porcupine's tests | etcd-cas-register |
| porcupine-kv   | Porcupine's logs of a key-value store                     | kv-string         |
| catalog-table  | eleven columns of DDL                                     | catalog           |
| register-table | four columns of reads and writes                          | register          |
| jepsen-edn     | histories of Jepsen, Knossos and Elle                     | by its operations |

Every format yields `harness.ops.Op`s, which a model interprets.
"""

from harness.formats.detect import SUFFIXES, is_history_file, open_history
from harness.formats.source import Source
from harness.formats.suggest import doubt_about, model_for

__all__ = ["SUFFIXES", "Source", "doubt_about", "is_history_file", "model_for", "open_history"]
