"""Outcomes of operations, tested by tables of scripted answers."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.ops import OpType
from harness.plugins import Request
from targets.kudu import messages as m
from targets.kudu.client import KuduClient, RetryPolicy
from targets.kudu.client.classify import Effect, mutation_effect
from targets.kudu.rpc import RpcError
from tests.kudu_client.fakes import FakeEnv, FakeRpc, Late, Overdue, Silence, connect
from tests.support.virtual import run
from tests.tiers import examples

Code, Status = m.MasterErrorCode, m.AppStatus
META = m.Meta("uuid-1", 7, 42)
LEADER, OTHER, THIRD = "m1:7051", "m2:7051", "m3:7051"
RPC_OF = {
    "create": "CreateTable",
    "alter": "AlterTable",
    "rename": "AlterTable",
    "delete": "DeleteTable",
    "get": "GetTableSchema",
    "list": "ListTables",
    "locate": "GetTableLocations",
    "is-create-done": "IsCreateTableDone",
    "is-alter-done": "IsAlterTableDone",
}
VALUES: dict[str, dict[str, Any]] = {
    "create": {"name": "t", "nonce": "n1", "columns": ["a"], "partitions": 2, "replicas": 3},
    "alter": {"name": "t", "nonce": "n1", "steps": [["add", "c"], ["rename", "c", "d"]]},
    "rename": {"name": "t", "new_name": "u", "nonce": "n1"},
    "delete": {"name": "t", "nonce": "n1"},
    "get": {"name": "t"},
    "list": {},
    "locate": {"name": "t"},
    "is-create-done": {"name": "t"},
    "is-alter-done": {"name": "t"},
}
MUTATIONS = ("create", "alter", "rename", "delete")
READS = tuple(f for f in RPC_OF if f not in MUTATIONS)


def answer(f: str, error: m.MasterError | None = None, **fields: Any) -> Any:
    return getattr(m, f"{RPC_OF[f]}Response")(META, error=error, **fields)


def refusal(
    code: Code, status: Status = Status.SERVICE_UNAVAILABLE, *, indeterminate: bool = False
) -> m.MasterError:
    return m.MasterError(code, status, "because", indeterminate)


def client_of(f: str, answers: list[Any], leader: list[Any], policy: RetryPolicy | None):
    rpc = FakeRpc(
        {
            (LEADER, "ConnectToMaster"): leader,
            (OTHER, "ConnectToMaster"): [connect(7)],
            (THIRD, "ConnectToMaster"): [Silence()],
            (LEADER, RPC_OF[f]): answers,
        }
    )
    masters = (LEADER, OTHER, THIRD)
    return KuduClient(FakeEnv(), rpc, masters=masters, process=3, policy=policy), rpc


def invoke(
    f: str,
    answers: list[Any],
    *,
    policy: RetryPolicy | None = None,
    timeout_s: float = 5.0,
    leader: list[Any] | None = None,
):
    async def main():
        client, rpc = client_of(f, answers, leader or [connect(7, "LEADER")], policy)
        completion = await client.invoke(Request(f, VALUES[f]), timeout_s=timeout_s)
        return completion, rpc

    return run(main())


NOT_LEADER = refusal(Code.NOT_THE_LEADER, Status.ILLEGAL_STATE)
LOST_LEADERSHIP = refusal(Code.NOT_THE_LEADER, indeterminate=True)
STARTING = refusal(Code.CATALOG_MANAGER_NOT_INITIALIZED)
NOT_FOUND = refusal(Code.TABLE_NOT_FOUND, Status.NOT_FOUND)
EXISTS = refusal(Code.TABLE_ALREADY_PRESENT, Status.ALREADY_PRESENT)


@pytest.mark.parametrize("f", MUTATIONS)
def test_success(f):
    completion, rpc = invoke(f, [answer(f, table_id="id1", schema_version=4)])
    assert completion.type is OpType.OK
    assert completion.value == {
        "result": "ok",
        "table_id": "id1",
        "schema_version": 4,
        "revision": 42,
        "term": 7,
    }
    assert (completion.error, completion.node) == (None, "m1")
    (attempt,) = completion.attempts
    assert (attempt.node, attempt.outcome) == ("m1", "ok")
    assert attempt.start <= attempt.end
    (request,) = rpc.requests(RPC_OF[f])
    assert request.request_id.nonce == "n1"
    assert request.request_id.client_id.endswith("-p3")


@pytest.mark.parametrize(
    ("f", "error", "result"),
    [
        ("create", EXISTS, "exists"),
        # another request may only have reserved the name
        (
            "create",
            refusal(Code.TABLE_ALREADY_PRESENT),
            None,
        ),
        ("rename", EXISTS, "exists"),
        ("rename", refusal(Code.TABLE_ALREADY_PRESENT), None),
        ("rename", NOT_FOUND, "not-found"),
        ("alter", NOT_FOUND, "not-found"),
        ("delete", NOT_FOUND, "not-found"),
        ("delete", refusal(Code.TABLE_NOT_FOUND), None),  # the table exists, but is not running
        ("alter", refusal(Code.INVALID_SCHEMA, Status.INVALID_ARGUMENT), "invalid"),
        ("create", refusal(Code.INVALID_SCHEMA, Status.INVALID_ARGUMENT), None),
        ("create", refusal(Code.TOO_MANY_TABLETS, Status.INVALID_ARGUMENT), None),
        ("create", refusal(Code.REPLICATION_FACTOR_TOO_HIGH, Status.INVALID_ARGUMENT), None),
        ("create", refusal(Code.EVEN_REPLICATION_FACTOR, Status.INVALID_ARGUMENT), None),
        ("create", refusal(Code.ILLEGAL_REPLICATION_FACTOR, Status.INVALID_ARGUMENT), None),
        ("create", refusal(Code.UNKNOWN_ERROR, Status.INVALID_ARGUMENT), None),
    ],
)
def test_refusals_are_definite_and_not_repeated(f, error, result):
    completion, rpc = invoke(f, [answer(f, error, table_id="id1")])
    assert completion.type is OpType.FAIL
    assert completion.error == f"{error.code.name}/{error.status.name}: because"
    if result is None:
        assert completion.value is None
    else:
        assert completion.value == {"result": result, "table_id": "id1", "revision": 42, "term": 7}
    assert len(completion.attempts) == len(rpc.requests(RPC_OF[f])) == 1


@pytest.mark.parametrize("f", MUTATIONS)
@pytest.mark.parametrize(
    "outcome",
    [
        Silence(),
        RpcError("connection reset", sent=True),
        LOST_LEADERSHIP,
        refusal(Code.UNKNOWN_ERROR, Status.RUNTIME_ERROR),
        refusal(Code.UNKNOWN_ERROR, Status.ABORTED),
        refusal(Code.TABLE_ALREADY_PRESENT, Status.ALREADY_PRESENT, indeterminate=True),
    ],
    ids=str,
)
def test_unknown_outcomes_are_info_and_not_repeated(f, outcome):
    given_answer = answer(f, outcome) if isinstance(outcome, m.MasterError) else outcome
    completion, rpc = invoke(f, [given_answer])
    assert (completion.type, completion.value) == (OpType.INFO, None)
    assert completion.error
    assert len(completion.attempts) == len(rpc.requests(RPC_OF[f])) == 1


@pytest.mark.parametrize("f", MUTATIONS)
@pytest.mark.parametrize("harmless", [NOT_LEADER, STARTING, RpcError("refused", sent=False)])
def test_attempts_without_effect_are_repeated_and_recorded(f, harmless):
    first = answer(f, harmless) if isinstance(harmless, m.MasterError) else harmless
    completion, rpc = invoke(f, [first, first, answer(f, table_id="id1")])
    assert completion.type is OpType.OK
    assert [a.outcome == "ok" for a in completion.attempts] == [False, False, True]
    requests = rpc.requests(RPC_OF[f])
    assert len(requests) == 3
    assert len({r.request_id for r in requests}) == 1  # all attempts belong to one operation
    assert [a.start for a in completion.attempts] == sorted(a.start for a in completion.attempts)


@pytest.mark.parametrize("f", MUTATIONS)
def test_only_harmless_attempts_until_the_deadline_is_fail(f):
    completion, _ = invoke(f, [answer(f, NOT_LEADER)], timeout_s=2.0)
    assert (completion.type, completion.value) == (OpType.FAIL, None)
    assert completion.error.startswith("NOT_THE_LEADER/ILLEGAL_STATE")
    assert len(completion.attempts) > 1


def test_no_leader_is_fail_without_attempts():
    completion, _ = invoke("create", [Silence()], leader=[connect(7)], timeout_s=2.0)
    assert (completion.type, completion.attempts, completion.node) == (OpType.FAIL, (), None)
    assert completion.error.startswith("NO_LEADER")


def test_the_number_of_attempts_is_limited_and_says_so():
    completion, rpc = invoke(
        "create", [answer("create", NOT_LEADER)], policy=RetryPolicy(attempts_max=3), timeout_s=99
    )
    assert len(completion.attempts) == len(rpc.requests("CreateTable")) == 3
    assert completion.type is OpType.FAIL
    assert completion.error.endswith("(gave up after 3 attempts)")


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, OpType.OK),
        (NOT_FOUND, OpType.INFO),  # may follow from the client's own earlier attempt
        (EXISTS, OpType.INFO),
        (NOT_LEADER, OpType.INFO),
        (LOST_LEADERSHIP, OpType.INFO),
    ],
)
@pytest.mark.parametrize("f", MUTATIONS)
def test_resend_keeps_doubt_until_a_success(f, last, expected):
    lost = RpcError("connection reset", sent=True)
    completion, rpc = invoke(
        f, [lost, answer(f, last)], policy=RetryPolicy(resend=True), timeout_s=3.0
    )
    assert completion.type is expected
    assert (completion.value is None) == (expected is OpType.INFO)
    requests = rpc.requests(RPC_OF[f])
    assert len(requests) >= 2
    assert len({r.request_id for r in requests}) == 1


REPEATING = RetryPolicy(resend=True, repeat=True)


@pytest.mark.parametrize("f", MUTATIONS)
def test_a_repeated_mutation_keeps_its_id_and_takes_the_last_answer(f):
    answers = [answer(f, table_id="id1"), answer(f, table_id="id2")]
    completion, rpc = invoke(f, answers, policy=REPEATING)
    assert completion.type is OpType.OK
    assert completion.value["table_id"] == "id2"
    assert [attempt.outcome for attempt in completion.attempts] == ["ok", "ok"]
    assert len({request.request_id for request in rpc.requests(RPC_OF[f])}) == 1


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (NOT_FOUND, OpType.FAIL),  # exactly-once is violated, so only the last answer counts
        (EXISTS, OpType.FAIL),
        (NOT_LEADER, OpType.OK),
        (LOST_LEADERSHIP, OpType.OK),
        (refusal(Code.UNKNOWN_ERROR, Status.SERVICE_UNAVAILABLE), OpType.OK),
        (RpcError("reset", sent=True), OpType.OK),
    ],
)
@pytest.mark.parametrize("f", MUTATIONS)
def test_a_repeated_mutation_is_done_unless_its_last_answer_denies_it(f, last, expected):
    answers = [
        answer(f, table_id="id1"), last if isinstance(last, RpcError) else answer(f, last)
    ]  # fmt: skip
    completion, _ = invoke(f, answers, policy=REPEATING, timeout_s=3.0)
    assert completion.type is expected
    assert len(completion.attempts) >= 2
    if expected is OpType.OK:
        assert completion.value["table_id"] == "id1"


def late_copies(f, answers, *, closed=False, **limits):
    """Return all requests of one operation, and the number sent before the operation ended."""

    async def main():
        policy = RetryPolicy(late_percent=100, late_s_max=9.0, **limits)
        client, rpc = client_of(f, answers, [connect(7, "LEADER")], policy)
        completion = await client.invoke(Request(f, VALUES[f]), timeout_s=2.0)
        before = len(rpc.requests(RPC_OF[f]))
        if closed:
            await client.close()
        await asyncio.sleep(20.0)
        return completion, rpc.requests(RPC_OF[f]), before

    return run(main())


@pytest.mark.parametrize(
    "last", [NOT_FOUND, NOT_LEADER, None, RpcError("connection reset", sent=True)]
)
@pytest.mark.parametrize("f", MUTATIONS)
def test_a_late_copy_has_the_same_id_and_its_answer_is_ignored(f, last):
    second = last if isinstance(last, RpcError) else answer(f, last)
    completion, requests, before = late_copies(f, [answer(f, table_id="id1"), second])
    assert completion.type is OpType.OK
    assert len(completion.attempts) == before == 1
    assert len(requests) == 2
    assert requests[0] == requests[1]


@pytest.mark.parametrize(
    ("f", "error", "closed"),
    [
        *((f, None, True) for f in MUTATIONS),  # a closed client sends no copy
        *(("create", error, False) for error in (NOT_FOUND, EXISTS, LOST_LEADERSHIP)),
        ("get", None, False),
    ],
)
def test_what_does_not_come_again_late(f, error, closed):
    _, requests, before = late_copies(f, [answer(f, error)], closed=closed)
    assert len(requests) == before == 1


@pytest.mark.parametrize("f", MUTATIONS)
@pytest.mark.parametrize("resend", [False, True])
@given(data=st.data())
@settings(max_examples=examples(40))
def test_random_attempts_against_the_definition(f, resend, data):
    kinds = data.draw(
        st.lists(
            st.sampled_from(["none", "unsent", "lost", "half-done", "refused", "done"]), max_size=6
        )
    )
    kinds.append("done")
    script = {
        "none": answer(f, NOT_LEADER),
        "unsent": RpcError("refused", sent=False),
        "lost": RpcError("reset", sent=True),
        "half-done": answer(f, LOST_LEADERSHIP),
        "refused": answer(f, NOT_FOUND),
        "done": answer(f, table_id="id1"),
    }
    completion, _ = invoke(
        f, [script[k] for k in kinds], policy=RetryPolicy(resend=resend), timeout_s=60
    )
    made = kinds[: len(completion.attempts)]
    uncertain = {"lost", "half-done"} & set(made)
    unsuccessful = OpType.INFO if uncertain else OpType.FAIL
    assert completion.type is (OpType.OK if made[-1] == "done" else unsuccessful)
    if not resend:
        assert all(k in {"none", "unsent"} for k in made[:-1])
    assert (completion.type is OpType.FAIL) <= (made[-1] == "refused")


@pytest.mark.parametrize(
    ("f", "error", "expected"),
    [
        ("create", None, OpType.INFO),
        ("create", EXISTS, OpType.INFO),
        ("delete", NOT_LEADER, OpType.FAIL),  # a refusal proves, even late, that nothing happened
        ("get", None, OpType.FAIL),
    ],
)
@pytest.mark.parametrize("slow", [Late, Overdue])
def test_answers_after_the_deadline_prove_nothing(slow, f, error, expected):
    if slow is Late and error is NOT_LEADER:
        expected = OpType.INFO  # the RPC layer no longer listens, so the answer is lost
    completion, _ = invoke(f, [slow(4.0, answer(f, error))], timeout_s=1.5)
    assert (completion.type, completion.value) == (expected, None)
    assert completion.error


def test_every_code_has_an_effect_and_only_listed_ones_are_definite():
    refused = {
        (code, status)
        for code in Code
        for status in Status
        if mutation_effect(refusal(code, status)) is Effect.REFUSED
    }
    assert {c for c, s in refused if s is not Status.INVALID_ARGUMENT} == {
        Code.INVALID_SCHEMA,
        Code.TABLE_NOT_FOUND,
        Code.TABLE_ALREADY_PRESENT,
        Code.TOO_MANY_TABLETS,
        Code.REPLICATION_FACTOR_TOO_HIGH,
        Code.TABLET_NOT_RUNNING,
        Code.EVEN_REPLICATION_FACTOR,
        Code.ILLEGAL_REPLICATION_FACTOR,
        Code.HIVE_METASTORE_ERROR,
        Code.NOT_AUTHORIZED,
        Code.TABLE_SOFT_DELETED,
    }
    for code in Code:
        error = refusal(code, Status.INVALID_ARGUMENT, indeterminate=True)
        assert mutation_effect(error) is Effect.UNKNOWN


# --- reads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [f for f in READS if f != "list"])
def test_not_found_is_a_complete_answer_of_a_read(f):
    completion, _ = invoke(f, [answer(f, NOT_FOUND)])
    assert completion.type is OpType.OK
    assert completion.value == {"result": "not-found", "revision": 42, "term": 7}


@pytest.mark.parametrize("f", READS)
@pytest.mark.parametrize("harmless", [NOT_LEADER, STARTING, RpcError("x", sent=True)])
def test_reads_are_repeated_freely(f, harmless):
    first = answer(f, harmless) if isinstance(harmless, m.MasterError) else harmless
    completion, _ = invoke(f, [first, answer(f)])
    assert completion.type is OpType.OK
    assert len(completion.attempts) == 2


@pytest.mark.parametrize("f", READS)
def test_lost_reads_fail_without_value(f):
    completion, _ = invoke(f, [Silence()])
    assert (completion.type, completion.value) == (OpType.FAIL, None)
    assert len(completion.attempts) >= 2


def test_locations_of_a_table_that_does_not_run_yet_are_no_observation():
    completion, _ = invoke("locate", [answer("locate", refusal(Code.TABLET_NOT_RUNNING))])
    assert (completion.type, completion.value) == (OpType.FAIL, None)


KEY = m.Column(0, "key", is_key=True)
SCHEMA = m.Schema((KEY, m.Column(1, "a"), m.Column(2, "b")))
TABLES = (m.ListedTable("id2", "z", "RUNNING", 1), m.ListedTable("id1", "a", "ALTERING", 0))
REPLICAS = (
    m.ReplicaLocation("ts1", "t1:7050", "FOLLOWER", "VOTER"),
    m.ReplicaLocation("ts2", "t2:7050", "LEADER", "VOTER"),
)
TABLETS = (m.TabletLocations("x", m.Partition(b"", b"\x80"), REPLICAS),)
SHOWN = {"tablet_id": "x", "start": "", "end": "80", "leader": "ts2", "replicas": ["ts1", "ts2"]}
AT = {"table_id": "id1", "schema_version": 3}


@pytest.mark.parametrize(
    ("f", "fields", "value"),
    [
        ("get", {**AT, "schema": SCHEMA, "applied_schema_version": 2, "comment": "n9"},
         {**AT, "applied_schema_version": 2, "columns": ["a", "b"], "column_ids": [1, 2],
          "comment": "n9"}),
        ("list", {"tables": TABLES}, {"tables": [["a", "id1", 0], ["z", "id2", 1]]}),
        ("locate", {**AT, "tablets": TABLETS}, {**AT, "tablets": [SHOWN]}),
        ("is-create-done", {"table_id": "i", "done": True}, {"table_id": "i", "done": True}),
        ("is-alter-done", AT, {**AT, "done": False}),
    ],
)  # fmt: skip
def test_values_of_reads(f, fields, value):
    completion, _ = invoke(f, [answer(f, **fields)])
    assert completion.value == {"result": "ok", "revision": 42, "term": 7, **value}


# --- the client's own rules ------------------------------------------------------------------


def test_request_ids_are_unique_per_operation_and_client():
    async def main():
        script = {
            (LEADER, "ConnectToMaster"): [connect(7, "LEADER")],
            (LEADER, "DeleteTable"): [answer("delete")],
        }
        env, rpc = FakeEnv(), FakeRpc(script)
        for process in (1, 1, 2):
            client = KuduClient(env, rpc, masters=(LEADER,), process=process)
            for _ in range(2):
                await client.invoke(Request("delete", VALUES["delete"]), timeout_s=1)
            await client.close()
        assert rpc.closed
        return [(r.request_id.client_id, r.request_id.seq_no) for r in rpc.requests("DeleteTable")]

    ids = run(main())
    assert len(set(ids)) == 6
    assert [seq for _, seq in ids] == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize(
    "request_",
    [
        Request("truncate", {"name": "t"}),
        Request("create", {"name": "t"}),
        Request("alter", {"name": "t", "nonce": "n", "steps": [["widen", "c"]]}),
        Request("get", None),
        Request("get", 7),
    ],
)
def test_operations_outside_the_vocabulary_are_usage_errors(request_):
    async def main():
        client = KuduClient(FakeEnv(), FakeRpc({}), masters=(LEADER,), process=1)
        await client.invoke(request_, timeout_s=1)

    with pytest.raises(UsageError, match="vocabulary 'ddl'"):
        run(main())
