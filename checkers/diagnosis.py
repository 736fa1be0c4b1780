"""The check of `harness doctor` that tells whether the checkers use their native Rust core."""

from __future__ import annotations

from harness.plugins import Diagnosis


class NativeCore(Diagnosis):
    """Tells whether `checkers._native`, the compiled searches of the checkers, is in use.

    The pure Python searches give the same results, more slowly.
    """

    api_version = 1
    name = "native-core"
    doc = "the Rust core of the linearizability checker, or pure Python in its place"

    def look(self) -> tuple[bool, str]:
        """Return whether the native core is in use, and a sentence for the user."""
        from checkers.linearizability.native import is_native, native_status

        return is_native(), native_status().removeprefix("native core: ")
