"""Infers for the lint which names, attributes and results are sets."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.determinism.rules import LIST_TYPES, MAP_TYPES, SET_TYPES


@dataclass(frozen=True, slots=True)
class Kind:
    """A simplified type: a set, a container of elements of kind `item`, or another type."""

    name: str  # "set", "map", "list" or "other"
    item: Kind | None = None


SET: Final = Kind("set")
OTHER: Final = Kind("other")


@dataclass(slots=True)
class Names:
    """The kinds of attributes and of functions' results, by name, in all linted files."""

    attributes: dict[str, list[Kind]] = field(default_factory=dict)
    results: dict[str, list[Kind]] = field(default_factory=dict)

    def learn(self, tree: ast.Module) -> None:
        """Collect annotations of attributes and results, and assignments of sets to attributes."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for statement in node.body:
                    if isinstance(statement, ast.AnnAssign) and isinstance(
                        statement.target, ast.Name
                    ):
                        kind = annotated(statement.annotation)
                        self.attributes.setdefault(statement.target.id, []).append(kind)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                kind = annotated(node.annotation)
                self.attributes.setdefault(node.target.attr, []).append(kind)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and _is_plain_set(node.value):
                        self.attributes.setdefault(target.attr, []).append(SET)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
                is_property = any(
                    last_name(d) in {"property", "cached_property"} for d in node.decorator_list
                )
                table = self.attributes if is_property else self.results
                table.setdefault(node.name, []).append(annotated(node.returns))

    @staticmethod
    def pick(kinds: Sequence[Kind]) -> Kind:
        """Return the kind to assume for a name with several kinds: a set if one of them is."""
        for kind in kinds:
            if kind.name == "set":
                return kind
        return next((kind for kind in kinds if kind.name != "other"), OTHER)


def annotated(annotation: ast.expr | None) -> Kind:
    """Return the kind that an annotation declares."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return annotated(ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:
            return OTHER
    if isinstance(annotation, ast.BinOp):
        return Names.pick([annotated(annotation.left), annotated(annotation.right)])
    name, arguments = last_name(annotation), list[ast.expr]()
    if isinstance(annotation, ast.Subscript):
        name = last_name(annotation.value)
        inner = annotation.slice
        arguments = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    if name in SET_TYPES:
        return SET
    if name in MAP_TYPES:
        return Kind("map", annotated(arguments[1]) if len(arguments) == 2 else OTHER)
    if name in LIST_TYPES:
        return Kind("list", annotated(arguments[0]) if arguments else OTHER)
    if name in {"Optional", "Final", "ClassVar", "Annotated"} and arguments:
        return annotated(arguments[0])
    return OTHER


def last_name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name, or of the name of a call."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_plain_set(node: ast.expr) -> bool:
    return isinstance(node, ast.Set | ast.SetComp) or (
        isinstance(node, ast.Call) and last_name(node.func) in {"set", "frozenset"}
    )
