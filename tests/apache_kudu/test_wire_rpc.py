"""Requests of the bundled clients, sent to a scripted Kudu server."""

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from targets.apache_kudu.wire import WireRpc, members, tables, tablets
from targets.apache_kudu.wire.errors import consensus_error, master_error, tablet_error
from targets.apache_kudu.wire.events import followed
from targets.apache_kudu.wire.tables import UNSTATED, Version, shown_versions
from targets.kudu import messages as m
from targets.kudu.client.classify import Effect, mutation_effect
from targets.kudu.consensus.messages import ConsensusErrorCode
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.rpc import RpcConnectionError, RpcError
from tests.apache_kudu.scripted import HERE, Scripted, failed, raft_state, serving

ID = m.RequestId("c", 1, "n")
NAMED = m.TableIdentifier(table_name="t")
NOT_FOUND = failed(3, 1, "the table does not exist")
SEEN = {"table_id": "i1", "schema": {"columns": [{"id": 0, "name": "key", "type": 8}]}}
LOCATED = {"tablets": [{"tablet_id": "T"}, {"tablet_id": "U"}]}
CREATE = m.CreateTableRequest(
    "t",
    m.Schema((m.Column(0, "key", is_key=True, is_nullable=False),)),
    m.PartitionSchema(1, ("key",)),
    ID,
)


def version(number, done=True):
    return {"schema_version": number, "done": done}


# --- errors -----------------------------------------------------------------------------------

LOST = (
    "operation requested can only be executed on a leader master, but this master is no longer "
    "the leader: Aborted: an error occurred while writing to the sys-catalog: Op aborted"
)


@pytest.mark.parametrize(
    ("answer", "effect"),
    [
        (failed(7, 9, "Not the leader. Local UUID: a"), Effect.NONE),
        (failed(7, 13, "Leader not yet ready to serve requests"), Effect.NONE),
        (failed(7, 13, "Catalog manager is not initialized. State: Starting"), Effect.NONE),
        (failed(7, 13, LOST), Effect.UNKNOWN),
        (failed(7, 11, "Failed initiating master Raft ChangeConfig request"), Effect.UNKNOWN),
        (failed(1, 14, "an error occurred while updating the sys-catalog: x"), Effect.UNKNOWN),
        (failed(7, 13, f"{LOST}: Not the leader"), Effect.UNKNOWN),
        (failed(1, 4, "an error occurred while updating the sys-catalog: x"), Effect.UNKNOWN),
        (failed(3, 1, "the table does not exist"), Effect.REFUSED),
        (failed(4, 13, "new table name t is already reserved"), Effect.REFUSED),
        (failed(10, 4, "replication factor must be odd"), Effect.REFUSED),
        (failed(13, 8, "the metastore"), Effect.UNKNOWN),
        (failed(14, 10, "no rights"), Effect.REFUSED),
        (failed(99, 999, "from the future"), Effect.UNKNOWN),
        ({}, Effect.DONE),
    ],
)
def test_the_effect_of_errors_of_masters(answer, effect):
    assert mutation_effect(master_error(answer)) is effect


@pytest.mark.parametrize(
    ("answer", "code", "indeterminate"),
    [
        (
            failed(1, 9, "Replica x is not leader of this config. Role: FOLLOWER."),
            "NOT_THE_LEADER",
            False,
        ),
        (failed(1, 11, "Op aborted by new leader"), "UNKNOWN_ERROR", True),
        (failed(1, 14, "timed out"), "TIMED_OUT", True),
        (failed(6, 1, "Tablet not found"), "TABLET_NOT_FOUND", False),
        (failed(12, 9, "not RUNNING"), "TABLET_NOT_RUNNING", False),
        (failed(5, 4, "column v1 is not present"), "MISMATCHED_SCHEMA", False),
        (failed(2, 4, "no key"), "MISMATCHED_SCHEMA", False),
        (failed(20, 9, "failed"), "UNKNOWN_ERROR", True),
    ],
)
def test_the_effect_of_errors_of_tablet_servers(answer, code, indeterminate):
    error = tablet_error(answer)
    assert (error.code.name, error.indeterminate) == (code, indeterminate)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (failed(17, 9, "cas"), ConsensusErrorCode.CAS_FAILED),
        (failed(1, 9, "another change is pending"), ConsensusErrorCode.ILLEGAL_STATE),
        (failed(1, 4, "bad peer"), ConsensusErrorCode.INVALID_CONFIG),
        (failed(1, 11, "aborted"), ConsensusErrorCode.ABORTED),
        (failed(15, 9, "not leader"), ConsensusErrorCode.NOT_THE_LEADER),
    ],
)
def test_only_certain_refusals_of_a_change_are_no_abort(answer, code):
    assert consensus_error(answer).code is code


# --- terms ------------------------------------------------------------------------------------


def of_master(*terms, leader=HERE):
    return [raft_state(SYSTEM_TABLET_ID, term, leader) for term in terms]


async def in_term(connection, request, handler):
    session = connection.session()
    return await session.in_one_term(lambda: handler(session, request))


async def test_an_answer_between_two_looks_at_one_term_is_of_this_term():
    connection = Scripted(GetConsensusState=of_master(3), CreateTable=[{"table_id": "i1"}])
    answer, lead = await in_term(connection, CREATE, tables.create_table)
    assert (answer.table_id, answer.schema_version, lead) == ("i1", UNSTATED, (3, True))


@pytest.mark.parametrize("states", [of_master(3, 4), [*of_master(3), RpcError("lost", sent=True)]])
@pytest.mark.parametrize("answer", [{"table_id": "i1"}, failed(4, 6, "exists")])
async def test_an_answer_of_an_uncertain_term_proves_nothing(states, answer):
    connection = Scripted(GetConsensusState=states, CreateTable=[answer])
    with pytest.raises(RpcError) as caught:
        await in_term(connection, CREATE, tables.create_table)
    assert caught.value.sent


async def test_without_a_first_look_nothing_is_sent():
    connection = Scripted(GetConsensusState=[RpcError("lost", sent=True)], CreateTable=[])
    with pytest.raises(RpcError) as caught:
        await in_term(connection, CREATE, tables.create_table)
    assert not caught.value.sent
    assert "CreateTable" not in connection.names_asked()


@pytest.mark.parametrize("text", ["Not the leader", LOST])
async def test_errors_by_which_no_leader_judged_need_no_term(text):
    states = [*of_master(3), RpcError("lost", sent=True)]
    connection = Scripted(GetConsensusState=states, CreateTable=[failed(7, 13, text)])
    answer, _ = await in_term(connection, CREATE, tables.create_table)
    assert answer.error.indeterminate is (text == LOST)


# --- tables -----------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["alter", "applied", "look", "read"]), max_size=30))
@example(["alter", "look", "read", "applied", "look"])
@example(["alter", "look", "read", "alter", "look"])
def test_shown_versions_are_never_wrong(steps):
    """The oracle is a table with two schema versions: the committed one, and the one that the
    tablets have applied.
    """
    committed = applied = 0
    before, truth = None, []
    for step in steps:
        if step == "alter":
            committed += 1
        elif step == "applied":
            applied = committed
        elif step == "read":
            truth.append((applied, committed))
        else:
            after = Version("i", committed, applied == committed)
            if before is not None:
                shown = shown_versions(before, after)
                for real in truth:
                    for number, actual in zip(shown, real, strict=True):
                        assert number in (UNSTATED, actual)
            before, truth = after, []


def test_versions_of_a_quiet_table_are_shown():
    quiet = Version("i", 4, True)
    assert shown_versions(quiet, quiet) == (4, 4)
    assert shown_versions(quiet, Version("i", 5, False)) == (4, UNSTATED)
    assert shown_versions(quiet, quiet._replace(table_id="j")) == (UNSTATED, UNSTATED)


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ([version(2)], (2, 2)),
        ([version(2, False), version(2)], (2, 2)),
        ([version(2, False)], (UNSTATED, 2)),
        ([NOT_FOUND], (UNSTATED, UNSTATED)),
    ],
)
async def test_a_schema_is_read_between_two_looks_at_its_version(versions, expected):
    connection = Scripted(GetTableSchema=[SEEN], IsAlterTableDone=versions)
    session = connection.session()
    answer = await tables.get_table_schema(session, m.GetTableSchemaRequest(NAMED))
    assert (answer.applied_schema_version, answer.schema_version) == expected
    assert answer.table_id == "i1"
    assert session.memory.columns["i1"] == answer.schema.columns


@pytest.mark.parametrize(
    ("versions", "made"),
    [([version(2), version(3, False)], 3), ([version(2), version(4)], UNSTATED)],
)
async def test_an_alter_made_the_only_version_between_two_looks(versions, made):
    connection = Scripted(
        GetTableSchema=[SEEN], IsAlterTableDone=versions, AlterTable=[{"table_id": "i1"}]
    )
    request = m.AlterTableRequest(NAMED, ID, new_table_name="u")
    answer = await tables.alter_table(connection.session(), request)
    assert (answer.error, answer.table_id, answer.schema_version) == (None, "i1", made)
    assert connection.names_asked().count("AlterTable") == 1


@pytest.mark.parametrize("sent", [True, False])
async def test_an_acknowledged_alter_stays_so_if_the_look_after_it_fails(sent):
    versions = [version(2), RpcError("no time is left", sent=sent)]
    connection = Scripted(
        GetTableSchema=[SEEN], IsAlterTableDone=versions, AlterTable=[{"table_id": "i1"}]
    )
    request = m.AlterTableRequest(NAMED, ID, new_table_name="u")
    answer = await tables.alter_table(connection.session(), request)
    assert (answer.error, answer.table_id, answer.schema_version) == (None, "i1", UNSTATED)


async def test_a_delete_names_the_id_that_the_name_has():
    connection = Scripted(GetTableSchema=[SEEN], DeleteTable=[{}])
    answer = await tables.delete_table(connection.session(), m.DeleteTableRequest(NAMED, ID))
    assert (answer.error, answer.table_id) == (None, "i1")
    ((_, request),) = [each for each in connection.asked if each[0] == "DeleteTable"]
    assert request == {"table": {"table_id": "i1", "table_name": "t"}}


async def test_a_delete_whose_name_moved_on_is_asked_again_by_its_new_id():
    seen = [SEEN, {**SEEN, "table_id": "i2"}]
    connection = Scripted(GetTableSchema=seen, DeleteTable=[NOT_FOUND, {}])
    answer = await tables.delete_table(connection.session(), m.DeleteTableRequest(NAMED, ID))
    assert (answer.error, answer.table_id) == (None, "i2")


async def test_a_delete_that_no_leader_judged_claims_no_id():
    connection = Scripted(GetTableSchema=[SEEN], DeleteTable=[failed(7, 13, LOST)])
    answer = await tables.delete_table(connection.session(), m.DeleteTableRequest(NAMED, ID))
    assert (answer.error.indeterminate, answer.table_id) == (True, "")


async def test_the_id_of_a_refused_delete_is_not_claimed():
    connection = Scripted(GetTableSchema=[NOT_FOUND], DeleteTable=[NOT_FOUND])
    answer = await tables.delete_table(connection.session(), m.DeleteTableRequest(NAMED, ID))
    assert (answer.error.code, answer.table_id) == (m.MasterErrorCode.TABLE_NOT_FOUND, "")
    assert connection.asked[-1] == ("DeleteTable", {"table": {"table_id": None, "table_name": "t"}})


DELETE = (tables.delete_table, m.DeleteTableRequest(NAMED, ID))
RENAME = (tables.alter_table, m.AlterTableRequest(NAMED, ID, new_table_name="u"))
ALTER = (tables.alter_table, m.AlterTableRequest(NAMED, ID))


@pytest.mark.parametrize(
    ("change", "afterwards", "applied"),
    [
        (DELETE, NOT_FOUND, True),
        (DELETE, {**SEEN, "table_name": "t"}, False),
        (DELETE, {**SEEN, "table_name": "u"}, False),
        (DELETE, failed(7, 9, "Not the leader."), False),
        (RENAME, {**SEEN, "table_name": "u"}, True),
        (RENAME, {**SEEN, "table_name": "v"}, False),  # u may have been renamed to v since
        (RENAME, NOT_FOUND, False),  # the table may have been dropped before the rename
        (RENAME, {**SEEN, "table_name": "t"}, False),
        # an alter does not go through the metastore, so its outcome is certain
        (ALTER, {**SEEN, "table_name": "t"}, True),
    ],
)
async def test_a_change_that_the_metastore_made_is_in_the_catalog_or_uncertain(
    change, afterwards, applied
):
    handler, request = change
    connection = Scripted(
        GetTableSchema=[SEEN, afterwards],
        DeleteTable=[{}],
        AlterTable=[{"table_id": "i1"}],
        IsAlterTableDone=[version(1)],
    )
    answer = await followed(handler, connection.session(), request)
    assert mutation_effect(answer.error) is (Effect.DONE if applied else Effect.UNKNOWN)


async def test_a_drop_of_a_table_whose_id_is_not_certain_has_an_unknown_outcome():
    connection = Scripted(GetTableSchema=[NOT_FOUND], DeleteTable=[{}])
    answer = await followed(tables.delete_table, connection.session(), DELETE[1])
    assert mutation_effect(answer.error) is Effect.UNKNOWN


@pytest.mark.parametrize(
    ("change", "effect"),
    [
        ((tables.create_table, CREATE), Effect.REFUSED),
        (ALTER, Effect.REFUSED),
        (RENAME, Effect.UNKNOWN),
        (DELETE, Effect.UNKNOWN),
    ],
)
async def test_an_error_of_the_metastore_leaves_the_changes_open_that_it_makes(change, effect):
    handler, request = change
    failure = [failed(13, 8, "gone")]
    answers = {"CreateTable": failure, "AlterTable": failure, "DeleteTable": failure}
    seen = {"GetTableSchema": [SEEN], "IsAlterTableDone": [version(1)]}
    answer = await followed(handler, Scripted(**answers, **seen).session(), request)
    assert mutation_effect(answer.error) is effect


async def test_a_refused_change_stays_refused_with_a_metastore():
    connection = Scripted(GetTableSchema=[SEEN], DeleteTable=[failed(14, 10, "no rights")])
    answer = await followed(tables.delete_table, connection.session(), DELETE[1])
    assert mutation_effect(answer.error) is Effect.REFUSED


@pytest.mark.parametrize(
    ("bounds", "shown"),
    [
        ([(0, 1), (1, 2)], [(None, 1), (1, None)]),
        ([(None, 1), (1, None)], [(None, 1), (1, None)]),
        ([(1, 2), (2, 3)], [(1, 2), (2, 3)]),
        ([(None, None)], [(None, None)]),
    ],
)
async def test_the_ends_of_the_key_space_are_unbounded(bounds, shown):
    def key(bucket):
        return b"" if bucket is None else bucket.to_bytes(4, "big")

    located = [
        {"tablet_id": f"T{start}", "partition": {"start": key(start), "end": key(end)}}
        for start, end in bounds
    ]
    connection = Scripted(GetTableLocations=[{"tablets": located}])
    request = m.GetTableLocationsRequest(m.TableIdentifier(table_id="i1"))
    answer = await tables.get_table_locations(connection.session(), request)
    ends = [(tablet.partition.start, tablet.partition.end) for tablet in answer.tablets]
    assert ends == [(key(start), key(end)) for start, end in shown]


async def test_locations_of_an_uncertain_table_do_not_say_whose_tablets_they_are():
    connection = Scripted(GetTableSchema=[SEEN], GetTableLocations=[NOT_FOUND] * 3 + [LOCATED])
    session = with_tablet(connection)
    request = m.GetTableLocationsRequest(NAMED)
    answer = await tables.get_table_locations(session, request)
    assert (answer.table_id, [tablet.tablet_id for tablet in answer.tablets]) == ("", ["T", "U"])
    assert session.memory.tables == {"T": "i1"}


# --- members ----------------------------------------------------------------------------------


async def test_only_a_ready_leader_lists_masters():
    connection = Scripted(ConnectToMaster=[{"role": 0}], GetConsensusState=of_master(3))
    answer = await members.list_masters(connection.session(), m.ListMastersRequest())
    assert answer.error.code is m.MasterErrorCode.NOT_THE_LEADER
    assert "ListMasters" not in connection.names_asked()


def listing(*listed, peers):
    down = {"error": {"code": 8}}
    entries = [
        {"instance": {"uuid": uuid}, "role": 1, "member_type": 1} if uuid else down
        for uuid in listed
    ]
    state = raft_state(SYSTEM_TABLET_ID, 3)
    config = {"peers": [{"uuid": uuid, "member_type": 1} for uuid in peers]}
    state["tablets"][0]["state"]["committed_config"] = config
    return Scripted(
        ConnectToMaster=[{"role": 1}], ListMasters=[{"masters": entries}], GetConsensusState=[state]
    )


async def test_a_master_that_is_down_is_listed_under_its_name():
    names = {"u1": "m1:7051", "u2": "m2:7051", "u3": "m3:7051"}
    connection = listing("", "u2", "u3", peers=names)
    answer = await members.list_masters(connection.session(names), m.ListMastersRequest())
    listed = {entry.address: (entry.role, entry.member_type) for entry in answer.masters}
    assert listed == {
        "m1:7051": ("UNKNOWN_ROLE", "VOTER"),
        "m2:7051": ("LEADER", "VOTER"),
        "m3:7051": ("LEADER", "VOTER"),
    }


@pytest.mark.parametrize("peers", [("u2",), ("u1",), ("u1", "u2", "u4"), ("u1", "u3")])
async def test_a_list_whose_silent_masters_are_not_certain_is_no_answer(peers):
    connection = listing("", "u2", peers=peers)
    with pytest.raises(RpcConnectionError):
        await members.list_masters(connection.session(), m.ListMastersRequest())


async def test_the_role_of_a_master_is_of_its_term_or_later():
    connection = Scripted(ConnectToMaster=[{"role": 1}], GetConsensusState=of_master(3))
    answer = await members.connect_to_master(connection.session(), m.ConnectToMasterRequest())
    assert (answer.role, answer.meta.term) == ("LEADER", 3)
    assert connection.names_asked() == ["GetConsensusState", "ConnectToMaster"]


@pytest.mark.parametrize(("leader", "role"), [(HERE, "LEADER"), ("another", "FOLLOWER")])
async def test_the_role_in_a_registration_is_of_its_term(leader, role):
    states = [raft_state(SYSTEM_TABLET_ID, 3, leader)]
    connection = Scripted(GetMasterRegistration=[{"role": 1}], GetConsensusState=states)
    request = m.GetMasterRegistrationRequest()
    answer = await members.get_master_registration(connection.session(), request)
    assert (answer.role, answer.meta.term) == (role, 3)


# --- rows -------------------------------------------------------------------------------------


def with_tablet(connection, names=None):
    session = connection.session(names)
    columns = (m.Column(0, "key", is_key=True, is_nullable=False), m.Column(1, "v"))
    session.memory.learn_columns("i1", columns)
    session.memory.tables["T"] = "i1"
    return session


def of_tablet(*terms, leader=HERE):
    return [raft_state("T", term, leader) for term in terms]


WRITE = m.WriteRequest("T", m.RowRequestId("c", 1), (m.RowOperation(m.RowKind.INSERT, ("k",)),))


async def test_a_write_has_the_term_of_its_leader_and_the_errors_of_its_rows():
    refused = {"row_index": 0, "error": {"code": 6}}
    written = {"timestamp": 70, "per_row_errors": [refused]}
    connection = Scripted(GetConsensusState=of_tablet(2), Write=[written])
    answer = await tablets.write(with_tablet(connection), WRITE, 1, "run")
    errors = (m.RowError(0, m.RowErrorCode.ALREADY_PRESENT),)
    assert answer == m.WriteResponse(None, 70, errors, 70, term=2)


async def test_a_row_that_was_refused_for_an_unknown_reason_leaves_the_write_open():
    refused = {"row_index": 0, "error": {"code": 5}}
    connection = Scripted(GetConsensusState=of_tablet(2), Write=[{"per_row_errors": [refused]}])
    answer = await tablets.write(with_tablet(connection), WRITE, 1, "run")
    assert answer.error.indeterminate


async def test_a_write_of_a_column_that_is_gone_is_refused_unsent():
    connection = Scripted(Write=[])
    operation = m.RowOperation(m.RowKind.INSERT, ("k",), {9: "x"})
    request = m.WriteRequest("T", m.RowRequestId("c", 1), (operation,))
    answer = await tablets.write(with_tablet(connection), request, 1, "run")
    assert answer.error.code is m.TabletErrorCode.MISMATCHED_SCHEMA
    assert not answer.error.indeterminate
    assert connection.asked == []


@pytest.mark.parametrize(
    ("leader", "request_", "error"),
    [
        (HERE, m.ScanRequest("T"), None),
        ("another", m.ScanRequest("T"), m.TabletErrorCode.NOT_THE_LEADER),
        ("another", m.ScanRequest("T", allow_followers=True), None),
        ("another", m.ScanRequest("T", m.ReadMode.READ_AT_SNAPSHOT), None),
    ],
)
async def test_only_the_leader_answers_reads_of_the_latest_state(leader, request_, error):
    connection = Scripted(GetConsensusState=of_tablet(2, leader=leader), Scan=[{}])
    answer = await tablets.scan(with_tablet(connection), request_, nobody)
    assert (answer.error and answer.error.code) == error
    assert ("Scan" in connection.names_asked()) is (error is None)


async def nobody(address):
    raise RpcError(f"{address} does not answer", sent=False)


def of_voters(term, leader=HERE, others=("u2", "u3")):
    state = raft_state("T", term, leader)
    peers = [{"uuid": uuid, "member_type": 1} for uuid in (HERE, *others)]
    state["tablets"][0]["state"]["committed_config"] = {"peers": peers}
    return [state]


@pytest.mark.parametrize(
    ("leader", "terms", "confirmed"),
    [
        (HERE, {"t2": 4, "t3": 5}, True),
        (HERE, {"t2": 3}, True),
        (HERE, {"t2": 5, "t3": 5}, False),
        (HERE, {"t2": 5}, False),
        (HERE, {}, False),
        (HERE, {"t2": 0}, False),  # t2 has no replica, so it confirms nothing
        # if u2 had been deposed, the next leader would have needed this replica's vote
        ("u2", {}, True),
    ],
)
@pytest.mark.parametrize("mode", [m.ReadMode.READ_AT_SNAPSHOT, m.ReadMode.READ_YOUR_WRITES])
async def test_snapshots_of_leaders_need_a_majority_without_a_later_term(
    mode, leader, terms, confirmed
):
    async def peer(address):
        node = address.partition(":")[0]
        if node not in terms:
            raise RpcError("no answer", sent=True)
        return Scripted(GetConsensusState=of_tablet(terms[node], leader="u2")).session()

    connection = Scripted(GetConsensusState=of_voters(4, leader), Scan=[{"snap_timestamp": 71}])
    session = with_tablet(connection, {"u2": "t2:7050", "u3": "t3:7050"})
    answer = await tablets.scan(session, m.ScanRequest("T", mode), peer)
    assert (answer.error is None) is confirmed
    if not confirmed:
        assert answer.error.code is m.TabletErrorCode.NOT_THE_LEADER


@pytest.mark.parametrize(("terms", "confirmed"), [((4, 4), True), ((4,), False), ((4, 5), False)])
async def test_a_follower_of_five_voters_may_follow_a_deposed_leader(terms, confirmed):
    nodes = {f"t{number}:7050": term for number, term in enumerate(terms, 2)}

    async def peer(address):
        if address not in nodes:
            raise RpcError("no answer", sent=True)
        return Scripted(GetConsensusState=of_tablet(nodes[address], leader="u2")).session()

    others = ("u2", "u3", "u4", "u5")
    connection = Scripted(GetConsensusState=of_voters(4, "u2", others), Scan=[{}])
    session = with_tablet(connection, {uuid: f"t{uuid[1:]}:7050" for uuid in others})
    request = m.ScanRequest("T", m.ReadMode.READ_AT_SNAPSHOT)
    answer = await tablets.scan(session, request, peer)
    assert (answer.error is None) is confirmed


async def test_a_snapshot_during_a_change_of_terms_is_read_again():
    states = [*of_tablet(2, leader="u2"), *of_tablet(3, leader="u2")]
    connection = Scripted(GetConsensusState=states, Scan=[{}])
    request = m.ScanRequest("T", m.ReadMode.READ_AT_SNAPSHOT)
    with pytest.raises(RpcError):
        await tablets.scan(with_tablet(connection), request, nobody)


def timestamps_asked(connection):
    return [
        (scan.get("read_mode"), scan.get("snap_timestamp"))
        for name, request in connection.asked
        if name == "Scan"
        for scan in [request["new_scan_request"]]
    ]


@pytest.mark.parametrize(
    ("request_", "asked", "answered", "shown"),
    [
        # On the wire, a snapshot excludes writes at its timestamp; for the harness's clients, it
        # includes them.
        (m.ScanRequest("T", m.ReadMode.READ_AT_SNAPSHOT, 70), (2, 71), 71, 70),
        (m.ScanRequest("T", m.ReadMode.READ_AT_SNAPSHOT), (2, None), 71, 70),
        (m.ScanRequest("T", m.ReadMode.READ_YOUR_WRITES), (3, None), 71, 70),
        (m.ScanRequest("T", allow_followers=True), (1, None), 0, 0),
        # sent as a snapshot read: a new leader's latest state may lack its predecessor's last
        # writes
        (m.ScanRequest("T"), (2, None), 71, 0),
    ],
)
async def test_timestamps_of_scans(request_, asked, answered, shown):
    latest = request_ == m.ScanRequest("T")
    states = of_tablet(2, leader=HERE if latest else "another")
    connection = Scripted(GetConsensusState=states, Scan=[{"snap_timestamp": answered}])
    answer = await tablets.scan(with_tablet(connection), request_, nobody)
    assert timestamps_asked(connection) == [asked]
    assert (answer.error, answer.snap_timestamp) == (None, shown)


async def test_a_scan_after_an_alter_takes_the_columns_of_the_server():
    mismatch = failed(5, 4, "Some columns are not present in the current schema: v")
    columns = [
        {"id": 0, "name": "key", "type": 8, "is_key": True},
        {"id": 2, "name": "w", "type": 8},
    ]
    hosted = {"status": {"tablet_id": "T"}, "schema": {"columns": columns}}
    connection = Scripted(Scan=[mismatch, {}], ListTablets=[{"tablets": [hosted]}])
    session = with_tablet(connection)
    request = m.ScanRequest("T", allow_followers=True)
    answer = await tablets.scan(session, request, nobody)
    assert (answer.error, answer.column_ids) == (None, (0, 2))


# --- connections ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ("hang up", True),
        (None, True),
        (("error", 1), True),
        (("error", 2), False),
        (("error", 4), False),
        (("error", 7), True),
        (("error", 11), True),
        (("error", 15), False),
    ],
)
async def test_calls_without_an_answer_say_whether_they_were_sent(answer, sent):
    def answers(name):
        return of_master(1)[0] if name == "GetConsensusState" else answer

    async with serving(answers) as env:
        rpc = WireRpc(env, {})
        with pytest.raises(RpcError) as caught:
            await rpc.call("m1:7051", CREATE, timeout_s=0.2)
        assert caught.value.sent is sent
        rpc.close()
        await asyncio.gather(*env.tasks, return_exceptions=True)


async def test_calls_overlap_on_one_connection_which_is_opened_again_after_its_end():
    tables_ = {"tables": [{"id": "i1", "name": "t"}]}
    ends = iter([False, False, True, False])

    def answers(name):
        if name == "GetConsensusState":
            return of_master(1)[0]
        return "hang up" if next(ends) else tables_

    async with serving(answers) as env:
        rpc = WireRpc(env, {})
        calls = [rpc.call("m1:7051", m.ListTablesRequest(), timeout_s=5.0) for _ in range(2)]
        listed = await asyncio.gather(*calls)
        assert [[each.name for each in answer.tables] for answer in listed] == [["t"]] * 2
        assert {answer.meta.term for answer in listed} == {1}
        with pytest.raises(RpcConnectionError):
            await rpc.call("m1:7051", m.ListTablesRequest(), timeout_s=5.0)
        assert (await rpc.call("m1:7051", m.ListTablesRequest(), timeout_s=5.0)).error is None
        rpc.close()
        with pytest.raises(RpcError):
            await rpc.call("m1:7051", m.ListTablesRequest(), timeout_s=5.0)
        await asyncio.gather(*env.tasks, return_exceptions=True)


async def test_nobody_listens_means_unsent():
    async with serving(lambda name: None) as env:
        pass
    rpc = WireRpc(env, {})
    with pytest.raises(RpcError) as caught:
        await rpc.call("m1:7051", m.ListTablesRequest(), timeout_s=1.0)
    assert not caught.value.sent


async def test_a_server_without_a_uuid_is_not_asked():
    asked = []
    async with serving(asked.append, status={}) as env:
        rpc = WireRpc(env, {})
        with pytest.raises(RpcError) as caught:
            await rpc.call("m1:7051", CREATE, timeout_s=0.2)
        assert (caught.value.sent, asked) == (False, [])
        rpc.close()
        await asyncio.gather(*env.tasks, return_exceptions=True)


async def test_a_client_that_is_closed_while_it_connects_leaves_no_connection():
    asked = asyncio.Event()
    async with serving(lambda name: asked.set(), status=None) as env:
        rpc = WireRpc(env, {})
        call = asyncio.create_task(rpc.call("m1:7051", CREATE, timeout_s=60.0))
        await asked.wait()
        rpc.close()
        await asyncio.gather(call, *env.tasks, return_exceptions=True)
