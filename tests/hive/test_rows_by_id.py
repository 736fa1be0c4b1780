"""Permits explain all histories of metastores that find a row by name and write it by id.

The metastores of this test are coroutines over one table of rows. Every `yield` lets other
coroutines act, so drops, renames and new tables of an old name interleave in every order. The
profile's permits describe these metastores.
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

NAMES = ("d.x", "d.y", "e.x", "e.y")
PERMITS = {
    "bundled": [DROP_TWICE, DROP_RENAMED],
    "real": [DROP_TWICE, DROP_RENAMED, DROP_MISSED, CHANGE_RENAMED],
}
CHANGES = ("create", "create", "drop", "drop", "rename", "rename", "rename", "alter")


class Rows:
    """Rows of tables by id, and the steps of changes; each change returns its result."""

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
        written = new
        if self.real:
            yield
            if ident not in self.rows:
                # a key constraint is violated, and the client does not learn what happened
                return None
            columns = zip(
                name.split("."), new.split("."), self.rows[ident][0].split("."), strict=True
            )
            written = ".".join(now if new == old else new for old, new, now in columns)
            if self.find(written) not in {None, ident}:
                return None
        self.rows[ident] = (written, nonce)
        return "ok"

    def alter(self, name, new, nonce):
        return self.rename(name, name, nonce)


def play(random, kind):
    """Build a history of up to 22 operations; `random` chooses the next client to act."""
    writer, metastore, running = HmsWriter(), Rows(kind), {}
    writer.permitting(*((permit, {}) for permit in PERMITS[kind]))
    clients = [*range(random.choice([2, 3, 4]))]
    nonces = [f"n{number}" for number in range(random.randint(10, 22))]
    while nonces or running:
        client = random.choice(clients if nonces else sorted(running))
        if client in running:
            step(writer, clients, running, client)
        elif random.random() < 0.2:
            writer.listed(client, *metastore.names())
            nonces.pop()
        else:
            f, (name, new) = random.choice(CHANGES), random.choices(NAMES, k=2)
            contended = [*metastore.names(), *(before for _, before, _ in running.values())]
            if f != "create" and contended:
                name = random.choice(contended)
            nonce = nonces.pop()
            writer.call(client, f, table(name, nonce, new if f == "rename" else None))
            running[client] = f, name, getattr(metastore, f)(name, new, nonce)
    return writer


def step(writer, clients, running, client):
    f, _, steps = running[client]
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


@pytest.mark.parametrize("kind", PERMITS)
@settings(max_examples=examples(300), deadline=None)
@given(st.randoms(use_true_random=True))
def test_permits_explain_every_race_of_rows_that_are_written_by_id(kind, random):
    assert verdict(play(random, kind)) in {Verdict.VALID, Verdict.PERMITTED}
