"""The history model `catalog`, for the file format "catalog table" and the vocabulary "ddl".

In a catalog table, every invocation has a `payload`; this distinguishes the two kinds of histories.
A create whose answer was lost contains the id that its table has if the create took effect. A
history in the vocabulary "ddl" is judged like a run's history (`checkers.catalog.linearizable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import msgspec

from checkers.catalog.history import catalog_history
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.models.types import (
    TABLES,
    Alter,
    Answer,
    CatalogInput,
    Create,
    Delete,
    Get,
    ListTables,
    Rename,
)
from checkers.foreign.model import (
    LinearizabilityCheck,
    LinearizabilityModel,
    bad_op,
    refuse_initial,
    refuse_settings,
)
from checkers.linearizability import UNKNOWN
from checkers.linearizability.proof import BROKEN, AnyOperation, operation_of
from checkers.linearizability.verify import CertificateError
from harness.errors import UsageError
from harness.ops import CheckResult, History, ModelSettings, Op, OpType, Pair, Verdict
from harness.plugins import HistoryModel

OPERATIONS: Final = ("create", "drop", "alter", "ren", "get", "list")
_REFUSALS: Final = {"ex": "exists", "nf": "not-found"}
_VOCABULARY: Final = (
    f"{', '.join(OPERATIONS)} as in a catalog table, "
    "with name and name2 as text, payload and id as whole numbers"
)
_ANSWERS: Final = (
    "answers {result, id, version, payload, listing} with a result of ok, ex, nf, "
    "whole numbers, and a listing of [name, id]"
)


T = TypeVar("T")


class TableRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of an invocation in a catalog table."""

    name: str
    name2: str
    payload: int
    id: int


class TableAnswer(msgspec.Struct, frozen=True):
    """The value of a completion in a catalog table."""

    result: Literal["ok", "ex", "nf"]
    id: int
    version: int
    payload: int
    listing: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class _DdlCheck:
    history: History
    operations: int

    def check(self, *, time_limit_s: float, draw: bool) -> tuple[CheckResult, None]:
        del draw
        checker = CatalogLinearizable()
        try:
            return checker.check(self.history, None, time_limit_s=time_limit_s), None
        except CertificateError as error:
            return CheckResult(checker.name, Verdict.UNKNOWN, f"{BROKEN}: {error}"), None


class CatalogModel(HistoryModel):
    """The history model of a whole catalog. The catalog is empty at first."""

    api_version = 1
    name = "catalog"
    doc = "names with ids, versions and payloads: create, drop, alter, rename, get and list"

    def prepare(
        self, ops: Iterable[Op], settings: ModelSettings
    ) -> _DdlCheck | LinearizabilityCheck:
        refuse_settings(self.name, settings)
        refuse_initial(self.name, settings, "absent")
        if settings.independent:
            raise UsageError(
                "--independent means nothing to the model catalog: its operations hold names, not "
                "pairs [key value]"
            )
        history = ops if isinstance(ops, History) else History(ops)
        pairs = history.pairs
        if pairs and not any(_is_of_table(pair.invoke.value) for pair in pairs):
            return _DdlCheck(history, len(catalog_history(history).operations))
        return _Tables().understand(history)


class _Tables(LinearizabilityModel):
    name = CatalogModel.name

    def specification(self, operations: Sequence[AnyOperation]) -> Catalog:
        return catalog_of_tables(operations)

    def operation(self, pair: Pair) -> AnyOperation | None:
        call, done = pair.invoke, pair.completion
        if self._did_nothing(pair):
            return None
        value = _parsed(call.value, TableRequest)
        if call.f not in OPERATIONS or value is None:
            raise bad_op(call, self.name, _VOCABULARY)
        request = table_request(call.f, value)
        if done is None or done.type is OpType.INFO:
            return None if isinstance(request, Get | ListTables) else operation_of(pair, request)
        if done.f != call.f:
            raise bad_op(done, self.name, f"completions of the invoked function, here {call.f!r}")
        answer = _parsed(done.value, TableAnswer)
        if answer is None:
            raise bad_op(done, self.name, _ANSWERS)
        if done.type is OpType.FAIL and answer.result == "ok":
            raise bad_op(done, self.name, "completions of type ok if their result is ok")
        return operation_of(pair, request, table_answer(request, answer))

    def _did_nothing(self, pair: Pair) -> bool:
        # a failure with the result "nf" or "ex" is an observation
        value = None if pair.completion is None else pair.completion.value
        return pair.type is OpType.FAIL and not (isinstance(value, dict) and "result" in value)


def catalog_of_tables(operations: Sequence[AnyOperation]) -> Catalog:
    """Return the model for the operations of a catalog table, in which every id is its own key."""
    ids: dict[str, str] = {}
    for operation in operations:
        request, answer = operation.input, operation.said
        if isinstance(request, Create):
            ids[request.key] = request.key
        if answer is not UNKNOWN:
            listed = (ident for _, ident, _ in answer.listing)
            ids |= {ident: ident for ident in (answer.table_id, *listed) if ident is not None}
    return Catalog(operations, ids, once=False, rules=TABLES)


def table_request(f: str, value: TableRequest) -> CatalogInput:
    """Return the model's input for a request `f` in a catalog table."""
    name, payload = value.name, f"payload {value.payload}"
    match f:
        case "create":
            return Create(name, str(value.id), (payload,))
        case "alter":
            return Alter(name, (("set", payload),))
        case "ren":
            return Rename(name, value.name2)
        case "drop":
            return Delete(name)
        case "get":
            return Get(name)
        case _:
            return ListTables()


def table_answer(request: CatalogInput, value: TableAnswer) -> Answer:
    """Return the model's answer for a completion in a catalog table."""
    if value.result != "ok":
        return Answer(_REFUSALS[value.result])
    match request:
        case ListTables():
            listing = tuple((name, str(ident), None) for name, ident in value.listing)
            if [entry[0] for entry in listing] != sorted({entry[0] for entry in listing}):
                listing = (*listing, *listing)
            return Answer("ok", listing=listing)
        case Create(key=key):
            return Answer("ok", key)
        case Alter():
            return Answer("ok", str(value.id), value.version)
        case Get():
            columns = (f"payload {value.payload}",)
            return Answer("ok", str(value.id), value.version, columns=columns)
        case _:
            return Answer("ok", str(value.id))


def _is_of_table(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == set(TableRequest.__struct_fields__)


def _parsed(value: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None
