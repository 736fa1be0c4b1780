"""Bug switches that a target's code uses, for tests of the ledger (the list of all switches)."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def asked(target):
    """Map each switch to the modules in `targets/TARGET` that use it."""
    found = {}
    for path in sorted((ROOT / "targets" / target).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module in {f"targets.{target}.bugs", f"targets.{target}.permits"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "Bug"
            ):
                found.setdefault(node.attr, set()).add(module)
    return found
