"""Transactions of the vocabulary `append` are single RPCs, whose answers decide the outcomes."""

from typing import Any

import pytest

from harness.errors import UsageError
from harness.ops import OpType
from harness.plugins import Completion, Request
from targets.kudu import messages as m
from targets.kudu.client import KuduClient
from targets.kudu.rpc import RpcError
from tests.kudu_client.fakes import FakeEnv, FakeRpc, Overdue, Silence, connect
from tests.support.virtual import run

META = m.Meta("uuid-1", 7, 42)
LEADER = "m1:7051"
READ = [["r", "t", None]]
APPEND = [["append", "t", "c1"], ["append", "t", "c2"]]


def refusal(code: m.MasterErrorCode, status: m.AppStatus, **more: Any) -> m.MasterError:
    return m.MasterError(code, status, "because", **more)


NOT_FOUND = refusal(m.MasterErrorCode.TABLE_NOT_FOUND, m.AppStatus.NOT_FOUND)
NOT_RUNNING = refusal(m.MasterErrorCode.TABLE_NOT_FOUND, m.AppStatus.SERVICE_UNAVAILABLE)
TAKEN = refusal(m.MasterErrorCode.INVALID_SCHEMA, m.AppStatus.ALREADY_PRESENT)
NOT_LEADER = refusal(m.MasterErrorCode.NOT_THE_LEADER, m.AppStatus.ILLEGAL_STATE)
LOST_LEADERSHIP = refusal(
    m.MasterErrorCode.NOT_THE_LEADER, m.AppStatus.ILLEGAL_STATE, indeterminate=True
)


def schema(*names: str, shown: int = 3, committed: int = 3) -> m.GetTableSchemaResponse:
    key = m.Column(id=0, name="key", is_key=True, is_nullable=False)
    columns = tuple(m.Column(id=n, name=name) for n, name in enumerate(names, 1))
    return m.GetTableSchemaResponse(
        META,
        schema=m.Schema((key, *columns)),
        schema_version=committed,
        applied_schema_version=shown,
    )


def invoke(value: Any, answers: list[Any], *, timeout_s: float = 2.0) -> tuple[Completion, FakeRpc]:
    async def main() -> tuple[Completion, FakeRpc]:
        rpc = FakeRpc(
            {
                (LEADER, "ConnectToMaster"): [connect(7, "LEADER")],
                (LEADER, "AlterTable"): answers,
                (LEADER, "GetTableSchema"): answers,
            }
        )
        client = KuduClient(FakeEnv(), rpc, masters=(LEADER,), process=3)
        return await client.invoke(Request("txn", value), timeout_s=timeout_s), rpc

    return run(main())


def test_appends_are_one_alter_with_all_columns_in_order():
    completion, rpc = invoke(APPEND, [m.AlterTableResponse(META, table_id="id", schema_version=4)])
    assert (completion.type, completion.value) == (OpType.OK, APPEND)
    (request,) = rpc.requests("AlterTable")
    assert request.table == m.TableIdentifier(table_name="t")
    assert request.new_table_name is None
    assert [(step.type, step.column.name) for step in request.steps] == [
        (m.StepType.ADD_COLUMN, "c1"),
        (m.StepType.ADD_COLUMN, "c2"),
    ]


def test_a_read_answers_with_the_columns_but_the_key():
    completion, _ = invoke(READ, [schema("c2", "c1")])
    assert (completion.type, completion.value) == (OpType.OK, [["r", "t", ["c2", "c1"]]])
    completion, _ = invoke(READ, [schema()])
    assert completion.value == [["r", "t", []]]


def test_a_table_that_is_not_there_reads_as_the_empty_list():
    completion, _ = invoke(READ, [m.GetTableSchemaResponse(META, error=NOT_FOUND)])
    assert (completion.type, completion.value) == (OpType.OK, [["r", "t", []]])


def test_a_table_that_does_not_run_is_not_read():
    completion, _ = invoke(READ, [m.GetTableSchemaResponse(META, error=NOT_RUNNING)])
    assert (completion.type, completion.value) == (OpType.FAIL, None)


def test_a_read_waits_until_committed_rows_are_visible():
    altering = schema("c1", shown=3, committed=4)
    completion, _ = invoke(READ, [altering, altering, schema("c1", "c2", shown=4, committed=4)])
    assert completion.value == [["r", "t", ["c1", "c2"]]]
    said = "ALTERING: version 4 is committed, but 3 is shown"
    assert [attempt.outcome for attempt in completion.attempts] == [said, said, "ok"]


def test_a_read_of_a_table_that_stays_altering_fails_and_says_nothing():
    completion, _ = invoke(READ, [schema("c1", shown=3, committed=4)])
    assert (completion.type, completion.value) == (OpType.FAIL, None)
    assert completion.error == "ALTERING: version 4 is committed, but 3 is shown"
    assert len(completion.attempts) > 2


@pytest.mark.parametrize("error", [NOT_FOUND, TAKEN])
def test_refused_appends_did_not_happen(error):
    completion, rpc = invoke(APPEND, [m.AlterTableResponse(META, error=error)])
    assert (completion.type, completion.value) == (OpType.FAIL, None)
    assert len(rpc.requests("AlterTable")) == 1


@pytest.mark.parametrize(
    "answer",
    [
        RpcError("lost", sent=True),
        Silence(),
        Overdue(3.0, m.AlterTableResponse(META, table_id="id", schema_version=4)),
        m.AlterTableResponse(META, error=LOST_LEADERSHIP),
    ],
)
def test_unanswered_appends_are_unknown_and_sent_once(answer):
    completion, rpc = invoke(APPEND, [answer])
    assert (completion.type, completion.value) == (OpType.INFO, None)
    assert len(rpc.requests("AlterTable")) == 1


@pytest.mark.parametrize(
    "answer", [RpcError("down", sent=False), m.AlterTableResponse(META, error=NOT_LEADER)]
)
def test_appends_that_no_server_considered_are_resent(answer):
    done = m.AlterTableResponse(META, table_id="id", schema_version=4)
    completion, rpc = invoke(APPEND, [answer, done])
    assert completion.type is OpType.OK
    assert len(rpc.requests("AlterTable")) == 2
    assert [attempt.outcome for attempt in completion.attempts][-1] == "ok"


@pytest.mark.parametrize("answer", [RpcError("lost", sent=True), Silence()])
def test_an_unanswered_read_failed(answer):
    assert invoke(READ, [answer])[0].type is OpType.FAIL


@pytest.mark.parametrize(
    "value",
    [
        [["append", "t", "c"], ["append", "u", "d"]],  # two tables in one transaction
        [["append", "t", "c"], ["r", "t", None]],  # an AlterTable shows no columns
        [["r", "t", None], ["r", "u", None]],
    ],
)
def test_transactions_beyond_one_rpc_are_refused(value):
    with pytest.raises(UsageError, match="more than one RPC and so not be atomic"):
        invoke(value, [schema()])


@pytest.mark.parametrize(
    "value",
    [None, {}, [], ["r"], [["r", "t"]], [["w", "t", "c"]], [["r", "t", []]], [["append", "t", 1]]],
)
def test_invalid_transactions_are_refused(value):
    with pytest.raises(UsageError, match="vocabulary 'append'"):
        invoke(value, [schema()])
