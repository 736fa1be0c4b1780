"""Turns a Compose file into a declaration: reads it, asks for missing facts, and writes TOML.

Each line with a guessed value has a comment. The loader reads the declaration before it is
returned. So a feature of the Compose file that the harness does not support is an error here.
"""

from __future__ import annotations

import json
import os  # determinism: no node runs this module
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path  # determinism: no node runs this module
from typing import Any, Final

from harness.errors import clipped
from harness.plugins import Ask, Draft
from targets.declared.compose.document import ComposeDocument
from targets.declared.document import Document
from targets.declared.draft.clients import Line, client_lines, http_operations, ports_of
from targets.declared.draft.kinds import MYSQL, POSTGRES, REDIS, SENTINEL, ZOOKEEPER
from targets.declared.draft.questions import ASSUMED, Questions, Setting
from targets.declared.draft.selection import AS_ASKED, Selection, selected
from targets.declared.draft.survey import Service, Survey, names_of
from targets.declared.file import Declared
from targets.declared.kept import Folder
from targets.declared.parts import Parts

__all__ = ["drafted"]

_PROMOTES: Final = ("patroni", "spilo", "repmgr", "pg_auto_failover", "stolon", "group_replication")
"""Words that mean that a system elects a new primary on its own."""
_WHY_MAX: Final = 200
_DRIVERS: Final = frozenset({POSTGRES.protocol, MYSQL.protocol, ZOOKEEPER.protocol})


def drafted(compose: Path, ask: Ask, without: Sequence[str]) -> Draft:
    """Return the declaration for a Compose file. The current folder is the base of its paths.

    Raises `UsageError`.
    """
    here = Path.cwd()
    name = os.path.relpath(compose, here)
    document = ComposeDocument(name, Folder(here))
    questions = Questions(ask)
    services = Survey(document, Folder(here)).services()
    chosen = selected(services, without, questions)
    draft = _Drafting(name, document, chosen, questions)
    text = draft.text()
    Parts(Declared(Document("harness.toml", text), Folder(here))).nodes("docker")
    return Draft(
        text=text,
        seen=tuple(draft.seen()),
        assumed=tuple(questions.assumed),
        extras=("docker", "systems") if draft.protocol in _DRIVERS else ("docker",),
    )


class _Drafting:
    """Writes the declaration for the chosen services."""

    def __init__(
        self, name: str, document: ComposeDocument, chosen: Selection, questions: Questions
    ) -> None:
        self.name, self.document, self.chosen, self.questions = name, document, chosen, questions
        self.nodes = [*chosen.members, *chosen.support]
        self.protocol = "http" if chosen.kind is None else chosen.kind.protocol
        ports, assumed = ports_of(chosen.kind, chosen.members, questions)
        self.port = Counter(ports.values()).most_common(1)[0][0]
        self.serving = [each for each in chosen.members if ports[each.name] == self.port]
        self.port_why = ASSUMED if self.port == assumed else ""
        folders = self._folders()
        self.data = {name: folder.value for name, folder in folders.items()}
        self.data_why = ASSUMED if any(folder.why for folder in folders.values()) else ""
        self.apart = {each: port for each, port in ports.items() if port != self.port}

    def text(self) -> str:
        """Return the TOML file."""
        operations, leader = (
            http_operations(self.chosen.kind, self.questions)
            if self.protocol == "http"
            else ([], [])
        )
        tables = {"client": self._client(), "leader": leader, "operations": operations}
        lines = [
            f"# Made by `harness init --compose {self.name}`. docs/your-system.md explains keys.",
            *map(_written, self._top()),
        ]
        for table, rows in tables.items():
            if rows:
                lines += ["", f"[{table}]", *map(_written, rows)]
        return "\n".join(lines) + "\n"

    def seen(self) -> Iterable[str]:
        """Yield the facts that the file shows, one line each."""
        what = self.protocol if self.chosen.kind is None else self.chosen.kind.name
        yield f"{what}: {names_of(self.chosen.members)}, port {self.port}{self._why()}"
        for name, port in self.apart.items():
            yield f"clients do not talk to {name}, which serves port {port}"
        if self.chosen.support:
            yield f"other nodes: {names_of(self.chosen.support)}"
        for name, why in self.chosen.left_out.items():
            yield f"left out: {name} ({why})"
        checked = [each for each in self.nodes if each.health]
        if checked:
            yield f"ready when its health check succeeds: {names_of(checked)}"
        for folder in dict.fromkeys(self.data.values()):
            names = [name for name, data in self.data.items() if data == folder]
            yield f"data in {folder}: {', '.join(names)}"
        bare = [each for each in self.nodes if each.name not in self.data]
        if bare:
            yield f"no volume, so power cuts lose nothing there: {names_of(bare)}"

    def _why(self) -> str:
        recognized = self.chosen.members[0].recognized
        return "" if recognized is None else f" ({recognized.why})"

    def _top(self) -> Iterable[Line]:
        kind = self.chosen.kind
        written = self.document.values.get("name")
        usual = _plain(self.chosen.members[0].name if kind is None else kind.name)
        name = _plain(written) if isinstance(written, str) else usual
        yield Line("name", name or usual)
        yield Line("compose", self.name)
        if self.chosen.left_out:
            guessed = [
                f"{name} ({why})" for name, why in self.chosen.left_out.items() if why != AS_ASKED
            ]
            why = clipped(f"{ASSUMED}: {', '.join(guessed)}", _WHY_MAX) if guessed else ""
            yield Line("without", list(self.chosen.left_out), why)
        yield Line("env", "docker")
        faults = ["partition", "kill", "pause"] if len(self.nodes) > 1 else ["kill", "pause"]
        yield Line("nemeses", faults, ASSUMED)
        yield Line("time-limit", 60, f"{ASSUMED}: seconds")
        roles = _by_kind(self.chosen.support)
        if roles:
            yield Line("roles", roles)
        if self._needs_all():
            yield Line("quorum", "all", f"{ASSUMED}: nothing here promotes a replica")
        first = {each.name: each.folders[0] for each in self.nodes if each.folders}
        if self.data != first or self.data_why:
            folders = sorted(set(self.data.values()))
            same = len(folders) == 1 and len(self.data) == len(self.nodes)
            yield Line("data", folders[0] if same else self.data, self.data_why)

    def _client(self) -> list[Line]:
        kind = self.chosen.kind
        why = self._why().strip(" ()") or "no known server"
        lines = [Line("protocol", self.protocol, why), Line("port", self.port, self.port_why)]
        silent = any(self.port not in each.ports for each in self.serving)
        shared = any(self.port in each.ports for each in self.nodes if each not in self.serving)
        if silent or shared:
            lines.append(Line("nodes", [each.name for each in self.serving]))
        return lines + client_lines(kind, self.serving, self.chosen.support, self.questions)

    def _needs_all(self) -> bool:
        """Whether the system has replicas, but nothing that promotes one of them to primary."""
        if self.chosen.kind not in {REDIS, POSTGRES, MYSQL} or len(self.chosen.members) < 2:
            return False
        if any(each.kind_name == SENTINEL.name for each in self.chosen.support):
            return False
        texts = " ".join(
            text
            for each in self.nodes
            for text in (each.image, *each.words, *each.variables, *each.texts)
        ).lower()
        return not any(word in texts for word in (*_PROMOTES, "cluster-enabled"))

    def _folders(self) -> dict[str, Setting]:
        """Return the data folder of each node, for power cuts. Ask if a node has several."""
        chosen: dict[str, Setting] = {}
        answers: dict[tuple[str, ...], Setting] = {}
        for service in self.nodes:
            folders = service.folders
            flag = service.flag("--data-dir", "-data-dir") or service.variable("ETCD_DATA_DIR")
            best = () if service.recognized is None else service.recognized.kind.data
            match = next((folder for folder in (flag, *best) if folder in folders), None)
            if match is not None or len(folders) == 1:
                chosen[service.name] = Setting(match or folders[0], "")
            elif folders:
                if folders not in answers:
                    question = f"The folder of {service.name} that power cuts should reach"
                    answers[folders] = self.questions.one_of(question, folders[0], folders)
                chosen[service.name] = answers[folders]
        return chosen


def _by_kind(services: Sequence[Service]) -> dict[str, list[str]]:
    roles: dict[str, list[str]] = {}
    for service in services:
        roles.setdefault(service.kind_name or service.name, []).append(service.name)
    return roles


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name)


def _written(line: Line) -> str:
    why = " ".join(line.why.split())
    return f"{line.key} = {_toml(line.value)}" + (f"  # {why}" if why else "")


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {_toml(each)}" for key, each in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else json.dumps(key, ensure_ascii=False)
