"""A template's operations take and return the same fields as those of its vocabulary."""

import importlib
import pkgutil

import pytest

from harness import vocabularies
from harness.vocabularies.transactions import Txn
from targets.declared.protocols.shapes import SHAPES

CALLS = {
    module.CALLS.name: module.CALLS.by_name
    for each in pkgutil.iter_modules(vocabularies.__path__)
    if hasattr(module := importlib.import_module(f"harness.vocabularies.{each.name}"), "CALLS")
}
TRANSACTIONS = {"list-append", "rw-register"}
IMPLIED = {"key", "client", "offset"}  # arguments that the target adds


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_every_vocabulary(name):
    calls = {Txn.f: Txn} if name in TRANSACTIONS else CALLS[name]
    assert SHAPES[name].keys() == calls.keys()
    for f, shape in SHAPES[name].items():
        assert shape.changes == calls[f].mutates
        fields = set(calls[f].__struct_encode_fields__)
        if name in TRANSACTIONS:
            assert fields <= shape.arguments
        else:
            assert fields | IMPLIED >= shape.arguments >= fields
