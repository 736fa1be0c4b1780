"""Histories of metastores that find a row by name and write it by id must not be convicted.

The metastores of this test are coroutines over one table of rows. Every `yield` lets others act, so
two drops, a rename between them and a new table of the old name meet in every order. The permits of
the profile describe these metastores, and all of them together must explain every history.
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.ops import OpType, Verdict
from harness.permits import CHANGE_RENAMED, DROP_MISSED, DROP_RENAMED, DROP_TWICE
from tests.hive.histories import HmsWriter, table
from tests.hive.test_linearizable import verdict
from tests.tiers import examples

NAMES = ("d.x", "d.y")
PERMITS = {
    "bundled": [DROP_TWICE, DROP_RENAMED],
    "real": [DROP_TWICE, DROP_RENAMED, DROP_MISSED, CHANGE_RENAMED],
}
CHANGES = ("create", "create", "drop", "drop", "rename", "rename", "alter")


class Rows:
    """Rows of tables by id, and the steps of changes; a step returns its result."""

    def __init__(self, kind):
        self.real = kind == "real"
        self.ids = itertools.count()
        self.rows = {}

    def names(self):
        return sorted(name for name, _ in self.rows.values())

    def find(self, name):
        return next((ident for ident, row in self.rows.items() if row[0] == name), None)

    def create(self, name, new, nonce):
        yield
        if self.find(name) is not None:
            return "already-exists"
        self.rows[next(self.ids)] = (name, nonce)
        return "ok"

    def drop(self, name, new, nonce):
        ident = self.find(name)
        if ident is None:
            return "no-such-object"
        yield
        if self.real:
            ident = self.find(name)
            yield
        self.rows.pop(ident, None)
        return "ok"

    def rename(self, name, new, nonce):
        ident = self.find(name)
        if ident is None or self.find(new) not in {None, ident}:
            return "invalid-operation"
        if self.real:
            yield
            if ident not in self.rows or self.find(new) not in {None, ident}:
                return None  # a key is violated, and the client does not learn what happened
        self.rows[ident] = (self.rows[ident][0] if new == name else new, nonce)
        return "ok"

    def alter(self, name, new, nonce):
        return self.rename(name, name, nonce)


def play(random, kind):
    """A history of up to 22 operations; `random` decides who acts next."""
    writer, metastore, running = HmsWriter(), Rows(kind), {}
    writer.permitting(*((permit, {}) for permit in PERMITS[kind]))
    clients = [*range(random.choice([2, 3, 4]))]
    for number in range(random.randint(8, 22)):
        client = random.choice(clients)
        if client in running:
            continue
        if random.random() < 0.2:
            writer.listed(client, *metastore.names())
            continue
        f, (name, new) = random.choice(CHANGES), random.choices(NAMES, k=2)
        nonce = f"n{number}"
        writer.call(client, f, table(name, nonce, new if f == "rename" else None))
        running[client] = f, getattr(metastore, f)(name, new, nonce)
        for client in random.sample(sorted(running), random.randint(0, len(running))):
            f, steps = running[client]
            try:
                next(steps)
            except StopIteration as end:
                del running[client]
                if end.value is None:
                    writer.add(client, OpType.INFO, f, None)
                    clients[clients.index(client)] = client + 10
                else:
                    ended = OpType.OK if end.value == "ok" else OpType.FAIL
                    writer.add(client, ended, f, {"result": end.value}, "hms1")
    return writer


@pytest.mark.parametrize("kind", PERMITS)
@settings(max_examples=examples(300), deadline=None)
@given(st.randoms(use_true_random=True))
def test_permits_explain_every_race_of_rows_that_are_written_by_id(kind, random):
    assert verdict(play(random, kind)) in {Verdict.VALID, Verdict.PERMITTED}
