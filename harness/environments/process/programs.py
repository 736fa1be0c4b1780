"""The programs of foreign nodes: processes run what the machine has installed."""

from __future__ import annotations

import os
import shutil

from harness.cluster import NodeSpec
from harness.declaration import ReadyCommand
from harness.deployment import forms_of
from harness.errors import UsageError

__all__ = ["require_programs"]


def require_programs(spec: NodeSpec) -> None:
    """Raise `UsageError` for a program that is not on this machine; see `NodeSpec`.

    What stands in a folder that a placeholder names is found out when it is started.
    """
    asked = [(command, spec) for command in spec.setup]
    if isinstance(spec.ready, ReadyCommand):
        asked.append((spec.ready.command, spec))
    asked += [(form.command, form) for form in forms_of(spec).values() if form.entry is None]
    for command, form in asked:
        program = command[0]
        path = form.environment.get("PATH", os.environ.get("PATH"))
        if "{" in program or shutil.which(program, path=path) is not None:
            continue
        package = spec.debian_package
        fix = "install it" if package is None else f"install Debian's package {package}"
        raise UsageError(
            f"node {spec.name!r} runs {program!r}, which is not on this machine; {fix}, or use "
            "--env docker"
        )
