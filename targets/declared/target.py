"""The target `declared`: any system that a TOML file declares, without Python code.

The option `system` contains the text of the file and of all files that it refers to
(`targets.declared.kept`). On the command line, `--system FILE` reads the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path  # determinism: no node runs this module
from typing import Any, Final

from harness.case import SYSTEM_NAME
from harness.cluster import NodeSpec
from harness.errors import HarnessError, StartError, UsageError
from harness.plugins import (
    TARGET_API_VERSION,
    Ask,
    Deployment,
    Draft,
    Option,
    System,
    Target,
    TargetSettings,
    override,
)
from targets.declared.file import as_text, from_disk
from targets.declared.parts import Parts, parts_of
from targets.declared.starting import explained
from targets.declared.system import DeclaredSystem

__all__ = ["DeclaredTarget"]

_OPTION: Final = "system"


class DeclaredTarget(Target):
    """Any system that a file declares. `configured` sets the target's name and vocabularies."""

    api_version = TARGET_API_VERSION
    name = "declared"
    doc = "any system that a file declares: --system FILE.toml (docs/your-system.md)"
    vocabularies: frozenset[str] = frozenset()
    profiles = ("strict",)
    bugs: Mapping[str, str] = {}
    options = (
        Option(_OPTION, "", "the declaration, with all files that it refers to"),
        Option("system-name", "", "the system's name in lists and reports, instead of the file's"),
    )

    @override
    def read_file(self, path: Path) -> dict[str, Any]:
        declared = from_disk(path)
        Parts(declared).nodes(None)  # makes the declaration read all files that it refers to
        return {_OPTION: as_text(declared), SYSTEM_NAME: declared.name}

    @override
    def draft_file(self, compose: Path, ask: Ask, without: Sequence[str]) -> Draft:
        from targets.declared.draft import drafted  # runs do not need this module

        return drafted(compose, ask, without)

    @override
    def start_failure(self, settings: TargetSettings, error: StartError) -> HarnessError:
        return explained(parts_of(settings.options[_OPTION]), error)

    @override
    def configured(self, options: Mapping[str, Any]) -> Target:
        text = options.get(_OPTION)
        if not text:
            raise UsageError(
                "the target 'declared' needs a file that declares the system: add --system "
                "FILE.toml (docs/your-system.md)"
            )
        parts = parts_of(text)
        target = type(self)()
        target.name = options.get(SYSTEM_NAME) or parts.declared.name
        target.vocabularies = parts.operations.vocabularies
        target.workload = parts.vocabulary(None)
        return target

    def nodes(self, settings: TargetSettings) -> list[NodeSpec]:
        return parts_of(settings.options[_OPTION]).nodes(settings.environment)

    def open(self, deployment: Deployment) -> System:
        return DeclaredSystem(deployment, parts_of(deployment.settings.options[_OPTION]))
