"""Parts of settings that a comparison of two labels ignores, for example the bugs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harness.case import Case
from results.facts.setting import setting_of
from results.lake.log.duckdb_views import readable, source_of
from results.lake.log.files import MAIN
from results.questions.engines import DuckEngine

if TYPE_CHECKING:
    from results.lake.log.snapshot import Snapshot

Row = Mapping[str, Any]


class Ignored(msgspec.Struct, frozen=True):
    """The ignored parts of settings, and the hash of each setting without these parts."""

    parts: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, with each setting replaced by the setting without the ignored parts."""
        for row in rows:
            setting = self.settings.get(row["setting"])
            yield row if setting is None else {**row, "setting": setting}

    def of_failures(self, cells: Iterable[Row]) -> list[dict[str, Any]]:
        """Return `cells` without the ignored parts. Ignored `bugs` become "any" in every cell."""
        without = {"bugs": "any"} if "bugs" in self.parts else {}
        return [{**row, **without} for row in self.of(cells)]

    @property
    def words(self) -> str:
        """Return the end of a sentence: the ignored parts. It is empty if nothing is ignored."""
        return f"; ignored here: {', '.join(self.parts)}" if self.parts else ""


NONE_IGNORED: Final = Ignored()


def ignored_parts(snapshot: Snapshot, parts: Sequence[str]) -> Ignored:
    """Hash each setting of the lake without `parts`, from one case of the setting."""
    if not parts:
        return NONE_IGNORED
    columns = ("setting", "environment", "case")
    with readable(snapshot.place.uri), contextlib.closing(DuckEngine()) as engine:
        source = source_of(engine.connection, snapshot, MAIN, columns)
        cases = engine.sql(
            f'SELECT setting, environment, any_value("case") AS text FROM {source} GROUP BY ALL'  # noqa: S608
        )
    return Ignored(
        tuple(parts),
        {
            row["setting"]: setting_of(
                msgspec.json.decode(row["text"], type=Case), row["environment"], parts
            )
            for row in cases.to_pylist()
        },
    )
