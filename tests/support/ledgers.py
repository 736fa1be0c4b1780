"""What tests of ledgers have in common: where the code of a target asks for switches."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def asked(target):
    """Switch -> the modules below `targets/TARGET` whose code asks for it."""
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
