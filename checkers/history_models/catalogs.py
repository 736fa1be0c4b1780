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
    refuse_settings,
    strange,
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
_VOCABULARY: Final = f"{', '.join(OPERATIONS)} as in the tables of catalogs"


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
        history = ops if isinstance(ops, History) else History(ops)
        pairs = history.pairs
        if pairs and not any(_is_table_value(pair.invoke.value) for pair in pairs):
            return _DdlCheck(history, len(catalog_history(history).operations))
        found = [self._operation(pair) for pair in pairs if pair.type is not OpType.FAIL]
        kept = [operation for operation in found if operation is not None]
        return LinearizabilityCheck(self.name, VersionedCatalog(), kept)

    def _operation(self, pair: Pair) -> Operation[VersionedInput, VersionedOutput] | None:
        call, done = pair.invoke, pair.completion
        assert isinstance(call.process, int), "pairs are of clients only"
        if call.f not in OPERATIONS or not _is_table_value(call.value):
            raise strange(call, self.name, _VOCABULARY)
        value: Mapping[str, Any] = call.value
        given = VersionedInput(call.f, value["name"], value["name2"], value["payload"], value["id"])
        if done is None or unreturned(pair):
            if call.f in {"get", "list"}:
                return None
            return Operation(call.process, given, call.index, UNKNOWN, None, call.index)
        seen: Mapping[str, Any] = done.value
        listing = tuple((name, ident) for name, ident in seen["listing"])
        output = VersionedOutput(
            seen["result"], seen["id"], seen["version"], seen["payload"], listing
        )
        return Operation(call.process, given, call.index, output, done.index, call.index)


def _is_table_value(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"name", "name2", "payload", "id"}
