"""The target of a case, configured by its options (`Target.configured`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.case import SYSTEM_NAME
from harness.plugins import Target
from harness.registry import load_plugin
from harness.support.interrupts import blaming


def load_target(name: str, options: Mapping[str, Any]) -> Target:
    """Return the target with this name, configured with `options`. Raises `UsageError`."""
    target: Target = load_plugin("targets", name)
    with blaming(f"the target {options.get(SYSTEM_NAME) or name!r}: configured()"):
        return target.configured(options)
