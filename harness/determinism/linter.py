"""The syntax-tree visitor of the lint, for one file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harness.determinism.kinds import OTHER, SET, Kind, Names, annotated, last_name
from harness.determinism.rules import (
    BANNED_BUILTINS,
    BANNED_IMPORTS,
    BANNED_METHODS,
    BANNED_NAMES,
    MUTABLE_CALLS,
    MUTATORS,
    ORDERED_CONSUMERS,
    SET_METHODS,
    UNORDERED_CONSUMERS,
)

EXCUSE: Final = re.compile(r"#\s*determinism:\s*\S")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A line of code that needs a change or an excuse (`# determinism: <reason>`)."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


class Linter(ast.NodeVisitor):
    """Walks the syntax tree of one file. Each scope on a stack maps names to their kinds."""

    def __init__(self, path: str, text: str, names: Names) -> None:
        self.findings: list[Finding] = []
        self._path = path
        self._lines = text.split("\n")
        self._names = names
        self._aliases: dict[str, str] = {}
        self._scopes: list[dict[str, Kind]] = []
        self._globals: set[str] = set()
        self._annotations: set[ast.AST] = set()
        self._order_free: set[ast.AST] = set()
        self._typing_only: set[ast.AST] = set()

    def _report(self, node: ast.AST, rule: str, message: str) -> None:
        first = getattr(node, "lineno", 1)
        last = getattr(node, "end_lineno", first) or first
        spanned = self._lines[first - 1 : last]
        if not any(EXCUSE.search(line) for line in (spanned[:1] + spanned[-1:])):
            self.findings.append(Finding(self._path, first, rule, message))

    def visit_Module(self, node: ast.Module) -> None:
        """Collect all annotations first, because they never run and so are not checked."""
        for child in ast.walk(node):
            for annotation in _annotations_of(child):
                self._annotations.update(ast.walk(annotation))
            if isinstance(child, ast.If) and last_name(child.test) == "TYPE_CHECKING":
                for statement in child.body:
                    self._typing_only.update(ast.walk(statement))
        self._scopes.append(self._bindings(node.body))
        for statement in node.body:
            self._check_global(statement)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Check the mutable values in a class's body, which the instances of all nodes share."""
        for statement in node.body:
            if isinstance(statement, ast.Assign):
                self._check_global(statement, where="class")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        arguments = node.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        scope = self._bindings(node.body, {p.arg: annotated(p.annotation) for p in parameters})
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            self.visit(default)
        self._scopes.append(scope)
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def _bindings(
        self, body: Sequence[ast.stmt], parameters: dict[str, Kind] | None = None
    ) -> dict[str, Kind]:
        """Map each name that a scope binds to its kind, by its annotation or assigned values."""
        declared: dict[str, Kind] = dict(parameters or {})
        assigned: dict[str, list[ast.expr]] = {}
        for node in _walk_scope(body):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                declared[node.target.id] = annotated(node.annotation)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        assigned.setdefault(target.id, []).append(node.value)
            elif isinstance(node, ast.NamedExpr):
                assigned.setdefault(node.target.id, []).append(node.value)
        # Two passes: a name may be assigned from a name that comes later in `assigned`.
        self._scopes.append(declared)
        for _ in range(2):
            for name, values in assigned.items():
                if name not in declared or declared[name] == OTHER:
                    kinds = [self._kind(value) for value in values]
                    declared[name] = kinds[0] if all(k == kinds[0] for k in kinds) else OTHER
        for node in _walk_scope(body):
            if isinstance(node, ast.For | ast.comprehension):
                for name, kind in self._loop_targets(node):
                    declared.setdefault(name, kind)
        return self._scopes.pop()

    def _loop_targets(self, node: ast.For | ast.comprehension) -> list[tuple[str, Kind]]:
        """Return the names that a loop binds, with their kinds if these can be inferred."""
        target, source = node.target, node.iter
        if isinstance(target, ast.Name):
            return [(target.id, self._kind(source).item or OTHER)]
        if isinstance(target, ast.Tuple) and len(target.elts) == 2 and _is_view(source):
            value = target.elts[1]
            assert isinstance(source, ast.Call)
            assert isinstance(source.func, ast.Attribute)
            if isinstance(value, ast.Name):
                return [(value.id, self._kind(source.func.value).item or OTHER)]
        return []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._aliases[alias.asname or top] = alias.name if alias.asname else top
            self._check_import(node, top)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            self._aliases[alias.asname or alias.name] = f"{module}.{alias.name}"
        if node.level == 0:
            if module == "random" and all(alias.name == "Random" for alias in node.names):
                return  # the import is allowed: `_check_name` checks each use of the name
            self._check_import(node, module.partition(".")[0])

    def _check_import(self, node: ast.stmt, top: str) -> None:
        if top in BANNED_IMPORTS and top != "random" and node not in self._typing_only:
            self._report(node, "import", f"do not import {top!r}: {BANNED_IMPORTS[top]}")
        elif isinstance(node, ast.ImportFrom) and top == "random":
            self._report(node, "import", f"do not import from 'random': {BANNED_IMPORTS[top]}")

    def visit_Name(self, node: ast.Name) -> None:
        self._check_name(node, self._aliases.get(node.id, ""))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        if dotted:
            self._check_name(node, dotted)
        else:
            self.generic_visit(node)

    def _dotted(self, node: ast.expr) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._aliases:
            return ""
        return ".".join([self._aliases[node.id], *reversed(parts)])

    def _check_name(self, node: ast.expr, dotted: str) -> None:
        if node in self._annotations:
            return
        if dotted in BANNED_NAMES:
            self._report(node, "call", f"do not use {dotted}: {BANNED_NAMES[dotted]}")
        elif dotted.partition(".")[0] == "random":
            self._report(node, "call", f"do not use {dotted}: {BANNED_IMPORTS['random']}")

    def visit_Call(self, node: ast.Call) -> None:
        """Check for banned calls, and for calls that consume a set in order."""
        function = node.func
        name = last_name(function)
        if isinstance(function, ast.Name) and name in BANNED_BUILTINS:
            if not any(name in scope for scope in self._scopes):
                self._report(node, "call", f"do not call {name}(): {BANNED_BUILTINS[name]}")
        elif isinstance(function, ast.Attribute) and name in BANNED_METHODS:
            self._report(node, "call", f"do not call {name}(): {BANNED_METHODS[name]}")
        keys = [k.value for k in node.keywords if k.arg == "key"]
        for key in keys:
            if isinstance(key, ast.Name) and key.id in {"id", "hash"}:
                self._report(node, "call", f"do not order by {key.id}: {BANNED_BUILTINS[key.id]}")
        if name in UNORDERED_CONSUMERS:
            self._order_free.update(node.args)
        self._check_set_call(node, name, has_key=bool(keys))
        self._check_mutation(node)
        self.generic_visit(node)

    def _check_set_call(self, node: ast.Call, name: str, *, has_key: bool) -> None:
        function = node.func
        if name == "pop" and isinstance(function, ast.Attribute) and not node.args:
            if self._kind(function.value) == SET:
                self._report_order(node, "pop() takes any element of a set")
            return
        if has_key and name in {"sorted", "min", "max", "nsmallest", "nlargest"}:
            what = f"{name}() with a key leaves equal keys in the order of the set"
        elif name in ORDERED_CONSUMERS:
            what = f"{name}() consumes a set in its order"
        else:
            return
        for argument in node.args:
            if self._is_unordered(argument):
                self._report_order(argument, what)

    def _check_mutation(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in MUTATORS:
            self._check_shared(node, function.value)

    def visit_For(self, node: ast.For) -> None:
        if self._is_unordered(node.iter):
            self._report_order(node.iter, "the loop runs in the order of a set")
        self.generic_visit(node)

    def _visit_comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        if node not in self._order_free:
            for generator in node.generators:
                if self._is_unordered(generator.iter):
                    self._report_order(generator.iter, "the comprehension has the order of a set")
        self.generic_visit(node)

    visit_ListComp = _visit_comprehension  # noqa: N815
    visit_GeneratorExp = _visit_comprehension  # noqa: N815
    visit_DictComp = _visit_comprehension  # noqa: N815

    def visit_Starred(self, node: ast.Starred) -> None:
        if node not in self._order_free and self._is_unordered(node.value):
            self._report_order(node, "the star unpacks a set in its order")
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        """Accept `{*a, *b}`: the result is a set, so the order of `a` and `b` does not matter."""
        self._order_free.update(node.elts)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        if self._is_unordered(node.value):
            self._report_order(node, "yield from follows the order of a set")
        self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        if self._kind(node.value) == SET:
            self._report_order(node, "the text shows a set in its order")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Check for `a, b = some_set`, which depends on order, and for changes of module state."""
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List) and self._is_unordered(node.value):
                self._report_order(node, "unpacking follows the order of a set")
            self._check_store(target)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._check_store(node.target)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._check_store(target)
        self.generic_visit(node)

    def _report_order(self, node: ast.AST, what: str) -> None:
        self._report(
            node, "set-order", f"{what}, which differs from process to process; use sorted(...)"
        )

    def _is_unordered(self, node: ast.expr) -> bool:
        return self._kind(node) == SET

    def _kind(self, node: ast.expr | None) -> Kind:
        if isinstance(node, ast.Set | ast.SetComp):
            return SET
        if isinstance(node, ast.Name):
            return next((s[node.id] for s in reversed(self._scopes) if node.id in s), OTHER)
        if isinstance(node, ast.Attribute):
            return Names.pick(self._names.attributes.get(node.attr, ()))
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, ast.BitOr | ast.BitAnd | ast.BitXor | ast.Sub
        ):
            sides = (node.left, node.right)
            if any(self._kind(s) == SET or _is_view(s) for s in sides):
                return SET
        if isinstance(node, ast.IfExp):
            return Names.pick([self._kind(node.body), self._kind(node.orelse)])
        if isinstance(node, ast.BoolOp):
            return Names.pick([self._kind(value) for value in node.values])
        if isinstance(node, ast.NamedExpr | ast.Await):
            return self._kind(node.value)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return self._kind(node.value).item or OTHER
        if isinstance(node, ast.Call):
            return self._kind_of_call(node)
        return OTHER

    def _kind_of_call(self, node: ast.Call) -> Kind:
        name = last_name(node.func)
        if isinstance(node.func, ast.Name):
            if name in {"set", "frozenset"}:
                return SET
            return Names.pick(self._names.results.get(name, ()))
        if isinstance(node.func, ast.Attribute):
            owner = self._kind(node.func.value)
            if owner == SET:
                return SET if name in SET_METHODS else OTHER
            if owner.name == "map" and owner.item is not None:
                if name in {"get", "pop", "setdefault"}:
                    return owner.item
                if name == "values":
                    return Kind("list", owner.item)
            if owner.name == "other":
                return Names.pick(self._names.results.get(name, ()))
        return OTHER

    def _check_global(self, statement: ast.stmt, *, where: str = "module") -> None:
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        final = False
        if isinstance(statement, ast.AnnAssign):
            targets, value = [statement.target], statement.value
            final = "Final" in {last_name(statement.annotation), _last_of_subscript(statement)}
        elif isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        if value is None or not _is_mutable(value):
            return
        for target in targets:
            if not isinstance(target, ast.Name) or re.fullmatch("__.*__", target.id):
                continue
            if where == "module":
                self._globals.add(target.id)
            counter = last_name(value) in {"count", "cycle"} and isinstance(value, ast.Call)
            if counter or not (final or target.id.lstrip("_").isupper()):
                self._report(
                    statement,
                    "global",
                    f"{target.id!r} is mutable state of the {where}, which all simulated nodes "
                    "share; put it into an object of the node, or make it a Final constant",
                )

    def _check_store(self, target: ast.expr) -> None:
        if isinstance(target, ast.Subscript) and len(self._scopes) > 1:
            self._check_shared(target, target.value)

    def _check_shared(self, node: ast.AST, changed: ast.expr) -> None:
        """Report a change of module state, unless an inner scope binds the same name."""
        if (
            isinstance(changed, ast.Name)
            and changed.id in self._globals
            and not any(changed.id in scope for scope in self._scopes[1:])
        ):
            self._report_global(node, changed.id)

    def visit_Global(self, node: ast.Global) -> None:
        """Report `global`, because a write to module state follows."""
        for name in node.names:
            self._report_global(node, name)

    def _report_global(self, node: ast.AST, name: str) -> None:
        self._report(
            node,
            "global",
            f"{name!r} of the module is changed, and all simulated nodes share it; "
            "put it into an object of the node",
        )


def _is_view(node: ast.expr) -> bool:
    """Whether a node is `d.keys()` or `d.items()`, whose operators (`&`, `|`) return sets."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"keys", "items"}
        and not node.args
    )


def _is_mutable(node: ast.expr) -> bool:
    displays = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
    return isinstance(node, displays) or (
        isinstance(node, ast.Call) and last_name(node.func) in MUTABLE_CALLS
    )


def _last_of_subscript(statement: ast.AnnAssign) -> str:
    annotation = statement.annotation
    return last_name(annotation.value) if isinstance(annotation, ast.Subscript) else ""


def _annotations_of(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield node.returns


def _walk_scope(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    pending = list(body)[::-1]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += list(ast.iter_child_nodes(node))[::-1]
