"""The list of defects to plant, read from `mutations.toml`."""

from pathlib import Path

import msgspec

__all__ = ["MUTATIONS", "ROOT", "Mutation"]

ROOT = Path(__file__).resolve().parents[2]


class Mutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A defect: `new` replaces `old` in `file`; one of `tests` (files or folders) must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Return `text` with the defect. Raises `ValueError` unless `old` occurs once."""
        if text.count(self.old) != 1:
            places = text.count(self.old)
            raise ValueError(f"{self.name}: {self.old!r} occurs {places} times in {self.file}")
        return text.replace(self.old, self.new)


class _Group(msgspec.Struct, forbid_unknown_fields=True):
    file: str
    tests: tuple[str, ...]
    defects: dict[str, tuple[str, str]]


class _List(msgspec.Struct, forbid_unknown_fields=True):
    group: tuple[_Group, ...]


MUTATIONS = tuple(
    Mutation(name, group.file, old, new, group.tests)
    for group in msgspec.toml.decode(
        (Path(__file__).parent / "mutations.toml").read_bytes(), type=_List
    ).group
    for name, (old, new) in group.defects.items()
)
