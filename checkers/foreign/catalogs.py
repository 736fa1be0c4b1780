"""catalog: names with ids, versions and payloads, from supplied tables or from our own DDL.

The two vocabularies are told apart by their values: an invocation of the tables has a `payload`.
A lost create of a table carries the id that it got if it took effect. Our own DDL goes the way of
a run's history (`checkers.catalog.linearizable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from checkers.catalog.history import catalog_history
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.foreign.pairs import refuse_initial
from checkers.linearizability.judged import (
    BROKEN,
    AnyOperation,
    LinearizabilityCheck,
    LinearizabilityModel,
    bad_op,
    operation_of,
    refuse_settings,
)
from checkers.linearizability.models.versioned import (
    VersionedCatalog,
    VersionedInput,
    VersionedOutput,
)
from checkers.linearizability.verify import CertificateError
from harness.errors import UsageError
from harness.ops import CheckResult, History, ModelSettings, Op, OpType, Pair, Verdict

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

    def check(self, *, time_limit_s: float, draw: bool) -> tuple[CheckResult, None]:
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
    """Tables of catalogs."""

    name = CatalogModel.name
    specification = VersionedCatalog

    def _operation(self, pair: Pair) -> AnyOperation | None:
        call, done = pair.invoke, pair.completion
        if self._did_nothing(pair):
            return None
        if call.f not in OPERATIONS or not _is_table_value(call.value):
            raise bad_op(call, self.name, _VOCABULARY)
        value: Mapping[str, Any] = call.value
        given = VersionedInput(call.f, value["name"], value["name2"], value["payload"], value["id"])
        if done is None or done.type is OpType.INFO:
            return None if call.f in {"get", "list"} else operation_of(pair, given)
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
        return operation_of(pair, given, output)

    def _did_nothing(self, pair: Pair) -> bool:
        # One that failed with "nf" or "ex" is an observation.
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
