"""The documented schema is the schema, it covers the vocabularies, and old lakes stay readable."""

import typing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from harness.errors import UsageError
from harness.ops import HARNESS, History, Op, OpType
from harness.vocabularies import ddl, follower_reads, members, rows
from results.judging.result_lake import RESULT_TABLES, RESULTS_VERSION
from results.lake import SCHEMA_VERSION, history_of, schemas
from results.lake.log.lake import Lake
from results.lake.tables.rebuild import HISTORY_TABLES
from results.lake.tables.row_tables import tables_of
from results.lake.tables.schema import ASKED, PARTITION, TABLES, markdown
from results.lake.transfer.source import source_of
from tests.results.lake.histories import about

DOCUMENT = Path(__file__).parents[3] / "docs" / "lake-tables.md"
PLAIN = {
    str: "string",
    int: "int64",
    list[str]: "list<string>",
    list[list[str]]: "list<list<string>>",
}


@pytest.mark.parametrize(
    ("mark", "tables", "head", "version"),
    [
        ("head", {"Every table": TABLES["runs"][:4]}, 0, None),
        ("tables", TABLES, 4, SCHEMA_VERSION),
        ("results", RESULT_TABLES, 4, RESULTS_VERSION),
    ],
)
def test_the_document_is_the_schema(mark, tables, head, version):
    """After a change: put `schema.markdown` between the marks, and raise the version."""
    before, _, rest = DOCUMENT.read_text().partition(f"<!-- {mark} -->\n")

    assert rest.partition(f"<!-- end of {mark} -->")[0] == markdown(tables, head=head)
    assert version is None or f"Version {version}." in before.splitlines()[-2]


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


@pytest.mark.lake
def test_a_lake_of_an_older_version_is_read_and_widened(tmp_path):
    """Here the columns `odd` are what is new, and that of the last version."""
    older = {
        name: pa.schema([field for field in schema if field.name not in {"odd", "value_ids"}])
        for name, schema in schemas().items()
    }
    told = [source_of(phases(word), about("n", word, digest=word)) for word in ("old", "new")]
    old, new = (tables_of([source]) for source in told)
    uri = str(tmp_path / "lake")
    Lake.create_or_open(uri, schemas=older, version=SCHEMA_VERSION - 1).append(
        {name: table.select(older[name].names) for name, table in old.items()}
    )

    lake = Lake.open(uri, schemas=schemas(), version=SCHEMA_VERSION)

    assert history_of(read(lake)) == phases("old")
    assert read(lake)["events"].select(["odd", "value_ids"]).to_pylist() == [
        {"odd": None, "value_ids": None}
    ]
    lake.append(new)
    own = {name: table.filter(pc.equal(table["run"], told[1].key)) for name, table in
           read(lake).items()}  # fmt: skip
    assert history_of(own) == phases("new")
    with pytest.raises(UsageError, match="install a newer one"):
        Lake.open(uri, schemas=older, version=SCHEMA_VERSION - 1)


def phases(word):
    """A history of one note."""
    return History([Op(0, 0, HARNESS, OpType.INFO, "phase", {"phase": word})])


def read(lake):
    """The tables that histories are made of."""
    return {name: lake.dataset(name).to_table() for name in HISTORY_TABLES}
