"""The documented schema equals the real one, and covers all vocabularies."""

import typing
from pathlib import Path

import pytest

from harness.vocabularies import ddl, follower_reads, members, rows
from results.judging.result_lake import RESULT_TABLES, RESULTS_VERSION
from results.lake.tables.schema import ASKED, PARTITION, SCHEMA_VERSION, TABLES

DOCUMENT = Path(__file__).parents[3] / "docs" / "lake-tables.md"
PLAIN = {
    str: "string",
    int: "int64",
    list[str]: "list<string>",
    list[list[str]]: "list<list<string>>",
}


def markdown(tables, *, head):
    """Format tables as the document does, without the columns in `head`."""
    lines = []
    for name, columns in tables.items():
        lines += [f"### {name}", "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{column.name}` | {column.type} | {column.unit} | {column.meaning} |"
            for column in columns[head:]
        ]
        lines.append("")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("mark", "tables", "head", "version"),
    [
        ("head", {"Every table": TABLES["runs"][:4]}, 0, None),
        ("tables", TABLES, 4, SCHEMA_VERSION),
        ("results", RESULT_TABLES, 4, RESULTS_VERSION),
    ],
)
def test_the_document_is_the_schema(mark, tables, head, version):
    """After a change, paste the output of `markdown` between the marks, and raise the version."""
    before, _, rest = DOCUMENT.read_text().partition(f"<!-- {mark} -->\n")

    assert rest.partition(f"<!-- end of {mark} -->")[0] == markdown(tables, head=head)
    assert version is None or f"Version {version}." in before.splitlines()[-2]


def test_every_table_is_partitioned_and_names_the_run_of_each_row():
    for columns in TABLES.values():
        names = [column.name for column in columns]
        assert names[:4] == [*PARTITION, "run"]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("call", [*ddl.CALLS, *follower_reads.CALLS, *members.CALLS, *rows.CALLS])
def test_typed_fields_of_vocabularies_have_typed_columns(call):
    for name, hint in typing.get_type_hints(call).items():
        if name in call.__struct_fields__:
            kinds = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
            kind = str if typing.get_origin(kinds[0]) is typing.Literal else kinds[0]
            if kind in PLAIN:
                assert ASKED[name][0] == PLAIN[kind]
