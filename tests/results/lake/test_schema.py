"""The documented schema is the schema, it covers the vocabularies, and old lakes stay readable."""

import typing
from pathlib import Path

import pyarrow as pa
import pytest

from harness.ops import HARNESS, History, Op, OpType
from harness.vocabularies import ddl, follower_reads, members, rows
from results.lake import SCHEMA_VERSION, completed, rows_of, schemas
from results.lake.schema import ASKED, PARTITION, TABLES, markdown
from tests.results.lake.histories import about

DOCUMENT = Path(__file__).parents[3] / "docs" / "lake.md"
PLAIN = {
    str: "string",
    int: "int64",
    list[str]: "list<string>",
    list[list[str]]: "list<list<string>>",
}


def test_the_document_is_the_schema():
    """After a change: put `results.lake.schema.markdown()` between the marks, raise the version."""
    text = DOCUMENT.read_text()
    tables = text.partition("<!-- tables -->\n")[2].partition("<!-- end of tables -->")[0]

    assert tables == markdown()
    assert f"Version {SCHEMA_VERSION}." in text


def test_every_table_is_partitioned_and_says_whose_rows_these_are():
    for columns in TABLES.values():
        names = [column.name for column in columns]
        assert names[:4] == [*PARTITION, "run"]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("call", [*ddl.CALLS, *follower_reads.CALLS, *members.CALLS, *rows.CALLS])
def test_what_vocabularies_type_has_a_typed_column(call):
    for name, hint in typing.get_type_hints(call).items():
        if name in call.__struct_fields__:
            kinds = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
            kind = str if typing.get_origin(kinds[0]) is typing.Literal else kinds[0]
            if kind in PLAIN:
                assert ASKED[name][0] == PLAIN[kind]


def test_a_table_of_an_older_version_gets_nulls_for_what_is_new():
    history = History([Op(0, 0, HARNESS, OpType.INFO, "phase", {"phase": "chaos"})])
    table = rows_of(history, about())["events"]
    older = table.drop_columns(["odd", "value_bound_s"]).append_column("gone", pa.array(["x"]))

    found = completed("events", older)

    assert found.schema == schemas()["events"]
    assert found.drop_columns(["odd", "value_bound_s"]) == older.drop_columns(["gone"])
    assert found["odd"].null_count == 1
