"""catalog: names with ids, versions and payloads, from supplied tables or from our own DDL.

The two vocabularies are told apart by their values: an invocation of the tables has a `payload`.
A lost create of a table carries the id that it got if it took effect. Our own DDL goes the way of
a run's history (`checkers.linearizable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from checkers._catalog_history import catalog_history
from checkers.history_models.engine import (
    BROKEN,
    LinearizabilityCheck,
    bad_op,
    history_of,
    nothing_happened,
    refuse_settings,
    unreturned,
)
from checkers.linearizability import UNKNOWN, Operation
from checkers.linearizability.models.versioned import (
    VersionedCatalog,
    VersionedInput,
    VersionedOutput,
)
from checkers.linearizability.verify import CertificateError
from checkers.linearizable import CatalogLinearizable
from harness.ops import (
    CheckResult,
    Counterexample,
    History,
    ModelSettings,
    Op,
    OpType,
    Pair,
    Verdict,
)

__all__ = ["CatalogModel"]

OPERATIONS: Final = ("create", "drop", "alter", "ren", "get", "list")
RESULTS: Final = ("ok", "ex", "nf")
_VOCABULARY: Final = (
    f"{', '.join(OPERATIONS)} as in the tables of catalogs, "
    "with name and name2 as text, payload and id as whole numbers"
)
_ANSWERS: Final = (
    f"answers {{result, id, version, payload, listing}} with a result of {', '.join(RESULTS)}, "
    "whole numbers, and a listing of [name, id]"
)


@dataclass(frozen=True, slots=True)
class _DdlCheck:
    """A history in the vocabulary "ddl"."""

    history: History
    operations: int

    def check(
        self, *, time_limit_s: float, draw: bool
    ) -> tuple[CheckResult, Counterexample | None]:
        """Judge as a run's history is judged."""
        del draw
        checker = CatalogLinearizable()
        try:
            return checker.check(self.history, None, time_limit_s=time_limit_s), None
        except CertificateError as error:
            return CheckResult(checker.name, Verdict.UNKNOWN, f"{BROKEN}: {error}"), None


class CatalogModel:
    """The whole catalog is one object, with lists and renames; nothing exists at first."""

    api_version = 1
    name = "catalog"
    doc = "names with ids, versions and payloads: create, drop, alter, rename, get and list"
    kind = "model"

    def prepare(
        self, ops: Iterable[Op], settings: ModelSettings
    ) -> _DdlCheck | LinearizabilityCheck:
        """See `HistoryModel`."""
        refuse_settings(self.name, settings)
        history = history_of(ops)
        pairs = history.pairs
        if pairs and not any(_is_of_table(pair.invoke.value) for pair in pairs):
            return _DdlCheck(history, len(catalog_history(history).operations))
        found = [self._operation(pair) for pair in pairs if not _did_nothing(pair)]
        kept = [operation for operation in found if operation is not None]
        return LinearizabilityCheck(
            self.name,
            VersionedCatalog(),
            kept,
            nothing_happened=nothing_happened(history, _did_nothing),
        )

    def _operation(self, pair: Pair) -> Operation[VersionedInput, VersionedOutput] | None:
        call, done = pair.invoke, pair.completion
        assert isinstance(call.process, int), "pairs are of clients only"
        if call.f not in OPERATIONS or not _is_table_value(call.value):
            raise bad_op(call, self.name, _VOCABULARY)
        value: Mapping[str, Any] = call.value
        given = VersionedInput(call.f, value["name"], value["name2"], value["payload"], value["id"])
        if done is None or unreturned(pair):
            if call.f in {"get", "list"}:
                return None
            return Operation(call.process, given, call.index, UNKNOWN, None, call.index)
        if done.f != call.f:
            raise bad_op(done, self.name, f"completions of what was invoked, here {call.f!r}")
        if not _is_table_answer(done.value):
            raise bad_op(done, self.name, _ANSWERS)
        seen: Mapping[str, Any] = done.value
        if done.type is OpType.FAIL and seen["result"] == "ok":
            raise bad_op(done, self.name, "completions of type ok where the result is ok")
        listing = tuple((name, ident) for name, ident in seen["listing"])
        output = VersionedOutput(
            seen["result"], seen["id"], seen["version"], seen["payload"], listing
        )
        return Operation(call.process, given, call.index, output, done.index, call.index)


def _did_nothing(pair: Pair) -> bool:
    """Whether it failed and saw nothing: one that failed with "nf" or "ex" is an observation."""
    value = None if pair.completion is None else pair.completion.value
    return pair.type is OpType.FAIL and not (isinstance(value, dict) and "result" in value)


def _is_of_table(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"name", "name2", "payload", "id"}


def _is_table_value(value: Any) -> bool:
    return (
        _is_of_table(value)
        and all(type(value[key]) is str for key in ("name", "name2"))
        and all(type(value[key]) is int for key in ("payload", "id"))
    )


def _is_table_answer(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() >= {"result", "id", "version", "payload", "listing"}
        and value["result"] in RESULTS
        and all(type(value[key]) is int for key in ("id", "version", "payload"))
        and isinstance(value["listing"], list | tuple)
        and all(_is_entry(entry) for entry in value["listing"])
    )


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, list | tuple)
        and len(entry) == 2
        and type(entry[0]) is str
        and type(entry[1]) is int
    )
