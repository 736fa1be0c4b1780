"""SQL transactions have proven outcomes, and only certain rows are valid answers."""

import asyncio
from decimal import Decimal

import psycopg
import pytest
from hypothesis import given

from harness.errors import UsageError
from targets.declared.operations import Operations
from targets.declared.protocols import DeclinedError, MalformedError, mysql, postgres, protocol_of
from targets.declared.protocols.sql import Result, SqlSession, Statement, Statements, Transaction
from tests.declared.protocols.servers import NODE, env_at
from tests.declared.protocols.test_values import same, values

ONE = Result(None, 1)
NONE = Result(None, 0)
LOST = ConnectionError("it broke")
REFUSED = DeclinedError("40001")


class Scripted(SqlSession):
    """A session whose statements return scripted results."""

    begin_statements = ("begin",)

    def __init__(self, *results):
        super().__init__(env_at(1), NODE)
        self.results, self.log = list(results), []

    async def execute(self, text, parameters):
        self.log.append(text.split()[0])
        if text in {"begin", "rollback"}:
            return ONE
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def close(self):
        pass


def performed(template, *results, arguments=None):
    session = Scripted(*results)
    try:
        asked = session.perform(template, arguments or {}, changes=True)
        outcome = asyncio.run(asked)
    except (DeclinedError, OSError, ValueError) as error:
        outcome = type(error)
    return outcome, session.may_have_changed, " ".join(session.log)


def test_a_probe_takes_any_answer():
    assert Result([("leader",)], 1).value("raw") == "leader"
    assert Result([(b"x", Decimal(1)), (None, 2)], 2).value("raw") == [["x", "1"], [None, 2]]
    assert Result([], 0).value("raw") == []
    assert NONE.value("raw") == 0


def test_a_single_statement():
    update = Statements("done", "update x")
    assert performed(update, ONE) == (None, True, "update")
    assert performed(update, LOST) == (ConnectionError, True, "update")
    assert performed(update, REFUSED) == (DeclinedError, False, "update")
    outcome, changed, _ = performed(update, NONE)
    assert issubclass(outcome, DeclinedError)
    assert not changed
    cas = Statements("whether", "update x")
    assert performed(cas, ONE)[0] is True
    assert performed(cas, NONE)[0] is False
    assert performed(Statements("whether", "select x"), Result([(False,)], 1))[0] is False
    assert performed(Statements("whether", "update x"), Result([(5,)], 1))[0] is True
    assert performed(Statements("whether", "update x"), Result([], 0))[0] is False
    assert performed(Statements("ran", "create x"), NONE)[0] is None


@pytest.mark.parametrize(
    ("text", "cell", "expected"),
    [
        ("select get_lock('x', 0)", 1, True),
        ("select get_lock('x', 0)", 0, False),
        ("Select\nget_lock('x', 0)", None, False),
        ("select pg_try_advisory_lock(1)", False, False),
        ("select pg_try_advisory_lock(1)", "false", False),
        ("select pg_advisory_unlock_all()", "", True),
        ("select id from account where id = 0", 0, True),
        ("update account set balance = 0 returning id", 0, True),
    ],
)
def test_a_function_answers_whether_it_took_effect(text, cell, expected):
    answer = Result([(cell,)], 1)
    assert performed(Statements("whether", text), answer)[0] is expected
    assert performed(Statements("whether", "update x", text), ONE, answer, ONE)[0] is expected


@pytest.mark.parametrize("answer", ["done", "whether"])
def test_several_statements_are_one_transaction(answer):
    two = Statements(answer, "update x", "insert y")
    whole = None if answer == "done" else True
    assert performed(two, ONE, ONE, ONE) == (whole, True, "begin update insert commit")
    assert performed(two, LOST) == (ConnectionError, False, "begin update")
    assert performed(two, ONE, LOST) == (ConnectionError, False, "begin update insert")
    assert performed(two, ONE, ONE, LOST) == (ConnectionError, True, "begin update insert commit")
    rolled_back = (DeclinedError, False, "begin update insert commit rollback")
    assert performed(two, ONE, ONE, REFUSED) == rolled_back
    outcome, changed, log = performed(two, ONE, NONE)
    assert not changed
    assert log == "begin update insert rollback"
    assert outcome is False if answer == "whether" else issubclass(outcome, DeclinedError)


def test_transactions_of_micro_operations():
    txn = Transaction({"r": "select", "append": "insert"}, joined=True)
    mops = [["append", "x", 1], ["r", "x", None], ["r", "y", None]]
    arguments = {"mops": mops}
    rows = (ONE, Result([("3,1",)], 1), Result([], 0), ONE)
    answer = [["append", "x", 1], ["r", "x", [3, 1]], ["r", "y", []]]
    outcome = performed(txn, *rows, arguments=arguments)
    assert outcome == (answer, True, "begin insert select select commit")
    assert performed(txn, *rows[:3], LOST, arguments=arguments)[:2] == (ConnectionError, True)
    assert performed(txn, *rows[:2], LOST, arguments=arguments)[:2] == (ConnectionError, False)
    assert performed(txn, NONE, arguments=arguments)[1:] == (False, "begin insert rollback")
    for wrong in ([(None,)], [(5,)], [("x",)], [("1",), ("2",)]):
        outcome = performed(txn, ONE, Result(wrong, 1), arguments=arguments)
        assert outcome[:2] == (MalformedError, False)
    unknown = performed(txn, arguments={"mops": [["w", "x", 1]]})
    assert unknown == (DeclinedError, False, "begin rollback")


@pytest.mark.parametrize(
    ("rows", "answer", "expected"),
    [
        ([], "value", None),
        ([(None,)], "value", None),
        ([(5,)], "value", 5),
        ([(Decimal(10**30),)], "value", 10**30),
        ([("5",)], "value", 5),
        ([('"5"',)], "value", "5"),
        ([(b"[1]",)], "value", [1]),
        ([(True,)], "value", True),
        ([(1.5,)], "value", 1.5),
        ([], "list", []),
        ([(1,), ("2",)], "list", [1, 2]),
        ([(1, 2), (3, "4")], "pairs", [[1, 2], [3, 4]]),
    ],
)
def test_what_rows_mean(rows, answer, expected):
    assert Result(rows, len(rows)).value(answer) == expected


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        (None, "value"),
        (None, "list"),
        ([(1,), (2,)], "value"),
        ([(1, 2)], "value"),
        ([()], "value"),
        ([("",)], "value"),
        ([("OK",)], "value"),
        ([(Decimal("1.5"),)], "value"),
        ([(Decimal("NaN"),)], "value"),
        ([(Decimal("Infinity"),)], "value"),
        ([(float("nan"),)], "value"),
        ([(object(),)], "value"),
        ([(1, 2)], "list"),
        ([(1,)], "pairs"),
    ],
)
def test_rows_that_are_no_value(rows, answer):
    with pytest.raises(MalformedError):
        Result(rows, 1).value(answer)


@given(values)
def test_values_are_bound_and_read_as_json(value):
    statement = Statement("update t set v = {value} where k = {key} and x like '10%'")
    arguments = {"key": "it's", "value": value}
    assert statement.text(arguments) == "update t set v = %s where k = %s and x like '10%%'"
    bound, key = statement.parameters(arguments)
    assert key == "it's"
    assert same(Result([(bound,)], 1).value("value"), value)


def test_a_name_is_part_of_the_statement_and_nothing_else():
    statement = Statement("insert into t_{table:name} values ({id})")
    assert statement.text({"table": "a", "id": 1}) == "insert into t_a values (%s)"
    with pytest.raises(ValueError, match="is not a name"):
        statement.text({"table": "a; drop table x", "id": 1})


@pytest.mark.parametrize(
    ("code", "declined"),
    [
        ("40001", True),
        ("40P01", True),
        ("25006", True),
        ("23505", True),
        ("42P01", True),
        ("40003", False),
        ("57P01", False),
        ("57014", False),
        ("58030", False),
        ("53100", False),
        ("08006", False),
        ("XX000", False),
    ],
)
def test_errors_of_postgres(code, declined):
    error = psycopg.errors.lookup(code)("why")
    translated = postgres._translated(error)
    assert isinstance(translated, DeclinedError) == declined
    assert declined or isinstance(translated, ValueError)
    assert getattr(translated, "elsewhere", False) == (code == "25006")


def test_an_error_without_a_code_is_one_of_the_connection():
    assert isinstance(postgres._translated(psycopg.OperationalError("gone")), ConnectionError)


def test_errors_of_mysql():
    aiomysql = pytest.importorskip("aiomysql")
    for code, kind in ((1213, DeclinedError), (1290, DeclinedError), (2013, OSError)):
        error = aiomysql.OperationalError(code, "why")
        assert isinstance(mysql._translated(error), kind)
    for code in (1053, 1180, 1317):
        assert isinstance(mysql._translated(aiomysql.OperationalError(code, "")), MalformedError)
    assert isinstance(mysql._translated(aiomysql.ProgrammingError(1064, "")), DeclinedError)
    assert isinstance(mysql._translated(aiomysql.OperationalError("lost")), ConnectionError)
    assert mysql._translated(aiomysql.OperationalError(1290, "")).elsewhere


def test_a_transaction_of_a_file_has_keys_and_values_per_micro_operation():
    txn = {"r": "select v from t where k = {key}", "w": "insert into t values ({key}, {value})"}
    operations = Operations(protocol_of("postgres", {}), {"txn": txn})
    assert "list-append" in operations.vocabularies
    with pytest.raises(UsageError, match=r"^operations\.txn"):
        Operations(protocol_of("postgres", {}), {"txn": "select f({key})"})
    with pytest.raises(UsageError, match=r"^operations\.txn\.w"):
        Operations(protocol_of("postgres", {}), {"txn": {**txn, "w": "update t set v = {value}"}})


def test_templates_of_a_file():
    protocol = protocol_of("postgres", {})
    read = protocol.template("operations.read", "select v from t where k = {key}", "value")
    assert isinstance(read, Statements)
    both = protocol.template("x", ["update a", "update b"], "whether")
    assert [each.written for each in both.statements] == ["update a", "update b"]
    txn = protocol.template("operations.txn", {"r": "select", "append": "insert"}, "list")
    assert isinstance(txn, Transaction)


@pytest.mark.parametrize(
    "written", ["", [], 5, [5], {}, {"read": "select"}, {"r": 5}, "select v where k = '{key}'"]
)
def test_wrong_templates_name_their_place(written):
    with pytest.raises(UsageError, match=r"^operations\.read"):
        protocol_of("postgres", {}).template("operations.read", written, "value")
