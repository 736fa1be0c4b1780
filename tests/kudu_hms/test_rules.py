"""Kudu's metastore plug-in accepts or refuses changes to tables."""

import msgspec
import pytest

from targets.hive.api import META, MetastoreError, MetaTable
from targets.hive.metastore import kudu_rules as rules

MASTER = {rules.MASTER_EVENT: "true"}
NOBODY = msgspec.UNSET
OWN = {rules.HANDLER_KEY: rules.HANDLER, rules.TABLE_ID: "a", rules.MASTER_ADDRESSES: "m1:7051"}


def table(columns=("key",), **changes):
    names = {"handler": rules.HANDLER_KEY, "ident": rules.TABLE_ID, "purge": rules.PURGE,
             "masters": rules.MASTER_ADDRESSES, "external": rules.EXTERNAL}  # fmt: skip
    parameters = {**OWN, **{names[name]: value for name, value in changes.items()}}
    return MetaTable("db1", "x", columns, {k: v for k, v in parameters.items() if v is not None})


PLAIN = MetaTable("db1", "y", ("v",), {"comment": "none of Kudu's"})
LOOSE = table(external="TRUE", ident=None)


def refused(check, *given):
    with pytest.raises(MetastoreError) as caught:
        check(*given)
    assert caught.value.kind == META
    return True


def test_only_masters_create_synchronized_tables_and_only_whole_ones():
    for whole in (table(), table(external="TRUE", purge="TRUE")):
        rules.check_create(whole, MASTER)
        assert refused(rules.check_create, whole, NOBODY)
        assert refused(rules.check_create, whole, {rules.MASTER_EVENT: "false"})
    assert refused(rules.check_create, table(ident=None), MASTER)
    assert refused(rules.check_create, table(masters=""), MASTER)


def test_others_are_let_through_but_not_with_kudus_keys():
    rules.check_create(PLAIN, NOBODY)
    rules.check_create(LOOSE, NOBODY)
    assert refused(rules.check_create, table(handler=None), MASTER)
    assert refused(rules.check_alter, PLAIN, table(handler="other"), MASTER)
    rules.check_alter(PLAIN, PLAIN, NOBODY)


def test_any_client_may_rename_and_drop_and_only_masters_change_columns():
    renamed = msgspec.structs.replace(table(), database="db2", name="z")
    rules.check_alter(table(), renamed, NOBODY)
    rules.check_drop(table(), NOBODY)
    wider = table(columns=("key", "v"))
    assert refused(rules.check_alter, table(), wider, NOBODY)
    rules.check_alter(table(), wider, MASTER)
    rules.check_alter(LOOSE, msgspec.structs.replace(LOOSE, columns=("w",)), NOBODY)


def test_only_masters_change_whether_a_table_is_synchronized():
    assert refused(rules.check_alter, table(), table(external="TRUE", purge="FALSE"), NOBODY)
    assert refused(rules.check_alter, table(), table(external="TRUE", purge="TRUE"), NOBODY)
    rules.check_alter(table(), table(external="TRUE", purge="TRUE"), MASTER)


def test_the_id_stays_unless_the_caller_says_that_it_knows():
    assert refused(rules.check_alter, table(), table(ident="b"), MASTER)
    rules.check_alter(table(), table(ident="b"), {**MASTER, rules.CHECK_ID: "false"})
    assert refused(rules.check_alter, table(), table(ident=None), MASTER)


def test_a_drop_that_names_an_id_means_no_other_table():
    rules.check_drop(table(), {rules.TABLE_ID: "a"})
    assert refused(rules.check_drop, table(), {rules.TABLE_ID: "b"})
    rules.check_drop(PLAIN, {rules.TABLE_ID: "b"})
