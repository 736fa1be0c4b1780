"""The tables and statements of all vocabularies, in the SQL dialect of one database.

Each vocabulary has tables of its own, such as `harness_register`. Keys are strings, values are
JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from targets.declared.protocols import Template
from targets.declared.protocols.sql import Statements, Transaction
from targets.declared.protocols.updates import BANK

__all__ = ["Dialect"]

_ROWS: Final = "create table if not exists TABLE (KEY {} primary key, {} {})"
_READ: Final = "select value from TABLE where KEY = {key}"
_INSERT: Final = "insert into TABLE (KEY, value) values ({key}, VALUE)"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The SQL fragments that differ between databases.

    `key` is the quoted name of the key column. `options` end the statement that creates a table.
    `conflict` ends an insert that updates an existing row: to the inserted value (`new`), to the
    `sum` of both numbers, or to both lists `joined`. `insert_once` is an insert that leaves an
    existing row as it is. `is_empty` is a query that succeeds only if no row matches the table and
    condition that replace {}. The table's name replaces TABLE.
    """

    key: str
    key_type: str
    text_type: str
    options: str
    conflict: str
    new: str
    sum: str
    joined: str
    insert_once: str
    is_empty: str

    def setup(self, vocabulary: str) -> Sequence[Template]:
        """Return the statements that create the tables of a vocabulary."""
        return [Statements("ran", text) for text in self._tables().get(vocabulary, ())]

    def _tables(self) -> Mapping[str, Sequence[str]]:
        register = [self._rows("register", self.text_type)]
        inserts = "create table if not exists TABLE (id bigint, KEY bigint, value bigint)"
        return {
            "register": register,
            "registers": register,
            "rw-register": register,
            "list-append": [self._rows("list", self.text_type)],
            "set": ["create table if not exists harness_set (value bigint)"],
            "counter": [self._rows("counter", "bigint")],
            "bank": [
                "create table if not exists harness_bank (id bigint primary key, balance bigint)",
                *(
                    self.insert_once.format("harness_bank", f"({account}, {balance})")
                    for account, balance in BANK.items()
                ),
            ],
            "lock": [
                self._rows("lock", "text", column="holder"),
                self.insert_once.format("harness_lock", "('lock', null)"),
            ],
            "inserts": [self._text(inserts, table) for table in ("a", "b")],
        }

    def operations(self) -> Mapping[str, Mapping[str, Template]]:
        """Return the templates of the operations of each vocabulary."""
        read, write = self._text(_READ, "register"), self._upsert("register", self.new)
        cas = "update TABLE set value = {new} where KEY = {key} and value = {old}"
        acquire = "update TABLE set holder = {client} where KEY = {key} and holder is null"
        release = "update TABLE set holder = null where KEY = {key} and holder = {client}"
        insert = "insert into harness_{table:name} values ({id}, {key}, 30)"
        free = self.is_empty.format("TABLE where KEY = {key} and value % 3 = 0")
        return {
            "register": {
                "read": Statements("value", read),
                "write": Statements("done", write),
                "cas": Statements("whether", self._text(cas, "register")),
            },
            "rw-register": {"txn": Transaction({"r": read, "w": write})},
            "list-append": {
                "txn": Transaction(
                    {"r": self._text(_READ, "list"), "append": self._upsert("list", self.joined)},
                    joined=True,
                )
            },
            "set": {
                "add": Statements("done", "insert into harness_set values ({value})"),
                "read": Statements("list", "select value from harness_set"),
            },
            "counter": {
                "add": Statements("done", self._upsert("counter", self.sum, value="{amount}")),
                "read": Statements("value", self._text(_READ, "counter")),
            },
            "bank": {
                "transfer": Statements(
                    "whether",
                    "update harness_bank set balance = balance - {amount}"
                    " where id = {from} and balance >= {amount}",
                    "update harness_bank set balance = balance + {amount} where id = {to}",
                ),
                "read": Statements("pairs", "select id, balance from harness_bank"),
            },
            "lock": {
                "acquire": Statements("whether", self._text(acquire, "lock")),
                "release": Statements("whether", self._text(release, "lock")),
            },
            "inserts": {
                "insert": Statements(
                    "whether", self._text(free, "a"), self._text(free, "b"), insert
                )
            },
        }

    def _rows(self, table: str, kind: str, *, column: str = "value") -> str:
        return self._text(_ROWS, table).format(self.key_type, column, kind) + self.options

    def _upsert(self, table: str, update: str, *, value: str = "{value}") -> str:
        inserted = _INSERT.replace("VALUE", value)
        return self._text(f"{inserted} {self.conflict}{update}", table)

    def _text(self, text: str, table: str) -> str:
        return text.replace("TABLE", f"harness_{table}").replace("KEY", self.key)
