"""Tells `harness doctor` whether the checkers' searches run on the native core."""

from __future__ import annotations

from harness.plugins import Diagnosis


class NativeCore(Diagnosis):
    """The check that `checkers._native` is available. Pure Python gives the same results more
    slowly.
    """

    api_version = 1
    name = "native-core"
    doc = "the Rust core of the linearizability checker, or pure Python in its place"

    def look(self) -> tuple[bool, str]:
        """Return whether the native core is in use, and its status in one line."""
        from checkers.linearizability.native import is_native, native_status

        return is_native(), native_status().removeprefix("native core: ")
