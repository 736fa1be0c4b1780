"""Sets in insertion order, for the code of simulated programs.

A real set iterates in the order of hashes. These differ between processes (`PYTHONHASHSEED`) and,
for objects without a `__hash__` of their own, between runs in one process. So the program's loader
puts the classes of this module in place of all sets (displays, comprehensions, `set` and
`frozenset`). It also replaces the results of `|`, `&`, `-` and `^`, because these are real sets if
the operands are views of dictionaries. It replaces `hash` by a function whose results for strings
and bytes are the same in every process.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import operator
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView
from typing import Any, Final, Self
from zlib import crc32

_MAKE_SET: Final = "__simulated_set__"


class _LikeSet(type):
    """Makes `isinstance(x, set)` true for real sets, too, in a program."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is OrderedSet:
            return isinstance(instance, builtins.set)
        if cls is OrderedFrozenSet:
            return isinstance(instance, builtins.frozenset)
        return type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        if cls is OrderedSet:
            return issubclass(subclass, builtins.set)
        if cls is OrderedFrozenSet:
            return issubclass(subclass, builtins.frozenset)
        return type.__subclasscheck__(cls, subclass)


def _ordered(items: Iterable[Any]) -> Iterable[Any]:
    if type(items) in (builtins.set, builtins.frozenset):
        try:
            return sorted(items)
        except TypeError:
            return items
    return items


class OrderedSet(builtins.set[Any], metaclass=_LikeSet):
    """A set in insertion order. The keys of `_order` are its elements."""

    _order: dict[Any, None]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        self._order = {}
        return self

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__()
        self.clear()
        self.update(items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._order)

    def __repr__(self) -> str:
        name = "set" if type(self) is OrderedSet else type(self).__name__
        if not self._order:
            return f"{name}()"
        inner = "{" + ", ".join(map(repr, self._order)) + "}"
        return inner if name == "set" else f"{name}({inner})"

    def __reduce__(self) -> Any:
        return type(self), (list(self._order),), self.__dict__ | {"_order": None} or None

    def __setstate__(self, state: Any) -> None:
        for name, value in state.items():
            if name != "_order":
                setattr(self, name, value)

    def add(self, item: Any, /) -> None:
        super().add(item)
        self._order.setdefault(item)

    def discard(self, item: Any, /) -> None:
        super().discard(item)
        self._order.pop(item, None)

    def remove(self, item: Any, /) -> None:
        super().remove(item)
        self._order.pop(item, None)

    def pop(self) -> Any:
        if not self._order:
            raise KeyError("pop from an empty set")
        item = next(iter(self._order))
        self.remove(item)
        return item

    def clear(self) -> None:
        super().clear()
        self._order.clear()

    def copy(self) -> Any:
        return type(self)(self)

    __copy__ = copy

    def update(self, *others: Iterable[Any]) -> None:
        for other in others:
            for item in _ordered(other):
                self.add(item)

    def difference_update(self, *others: Iterable[Any]) -> None:
        for other in others:
            for item in list(other):
                self.discard(item)

    def intersection_update(self, *others: Iterable[Any]) -> None:
        for other in others:
            keep = builtins.set(other)
            for item in [item for item in self._order if item not in keep]:
                self.discard(item)

    def symmetric_difference_update(self, other: Iterable[Any], /) -> None:
        for item in OrderedSet(other):
            (self.discard if item in self else self.add)(item)

    def union(self, *others: Iterable[Any]) -> Any:
        result = OrderedSet(self)
        result.update(*others)
        return result

    def difference(self, *others: Iterable[Any]) -> Any:
        result = OrderedSet(self)
        result.difference_update(*others)
        return result

    def intersection(self, *others: Iterable[Any]) -> Any:
        result = OrderedSet(self)
        result.intersection_update(*others)
        return result

    def symmetric_difference(self, other: Iterable[Any], /) -> Any:
        result = OrderedSet(self)
        result.symmetric_difference_update(other)
        return result

    def __or__(self, other: Any) -> Any:
        return self.union(other) if _is_set(other) else NotImplemented

    def __ror__(self, other: Any) -> Any:
        return OrderedSet(other).union(self) if _is_set(other) else NotImplemented

    def __and__(self, other: Any) -> Any:
        return self.intersection(other) if _is_set(other) else NotImplemented

    def __rand__(self, other: Any) -> Any:
        return OrderedSet(other).intersection(self) if _is_set(other) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return self.difference(other) if _is_set(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return OrderedSet(other).difference(self) if _is_set(other) else NotImplemented

    def __xor__(self, other: Any) -> Any:
        return self.symmetric_difference(other) if _is_set(other) else NotImplemented

    def __rxor__(self, other: Any) -> Any:
        return OrderedSet(other).symmetric_difference(self) if _is_set(other) else NotImplemented

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __iand__(self, other: Any) -> Any:
        self.intersection_update(other)
        return self

    def __isub__(self, other: Any) -> Any:
        self.difference_update(other)
        return self

    def __ixor__(self, other: Any) -> Any:
        self.symmetric_difference_update(other)
        return self


class OrderedFrozenSet(builtins.frozenset[Any], metaclass=_LikeSet):
    """A frozen set in insertion order."""

    _order: tuple[Any, ...]

    def __new__(cls, items: Iterable[Any] = ()) -> Self:
        order = tuple(dict.fromkeys(_ordered(items)))
        self = super().__new__(cls, order)
        self._order = order
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self._order)

    def __repr__(self) -> str:
        inner = "{" + ", ".join(map(repr, self._order)) + "}" if self._order else ""
        return f"frozenset({inner})"

    def __reduce__(self) -> Any:
        return type(self), (list(self._order),)

    def copy(self) -> Any:
        return self

    def _with(self, result: OrderedSet) -> OrderedFrozenSet:
        return OrderedFrozenSet(result)

    def union(self, *others: Iterable[Any]) -> Any:
        return self._with(OrderedSet(self).union(*others))

    def difference(self, *others: Iterable[Any]) -> Any:
        return self._with(OrderedSet(self).difference(*others))

    def intersection(self, *others: Iterable[Any]) -> Any:
        return self._with(OrderedSet(self).intersection(*others))

    def symmetric_difference(self, other: Iterable[Any], /) -> Any:
        return self._with(OrderedSet(self).symmetric_difference(other))

    def __or__(self, other: Any) -> Any:
        return self.union(other) if _is_set(other) else NotImplemented

    def __and__(self, other: Any) -> Any:
        return self.intersection(other) if _is_set(other) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return self.difference(other) if _is_set(other) else NotImplemented

    def __xor__(self, other: Any) -> Any:
        return self.symmetric_difference(other) if _is_set(other) else NotImplemented

    __ror__, __rand__, __rxor__ = __or__, __and__, __xor__

    def __rsub__(self, other: Any) -> Any:
        return OrderedSet(other).difference(self) if _is_set(other) else NotImplemented


def _is_set(value: Any) -> bool:
    return isinstance(value, builtins.set | builtins.frozenset | KeysView | ItemsView)


def steady_hash(value: Any, /) -> int:
    """Act like `hash`, but return the same number for strings and bytes in every process."""
    if isinstance(value, str) and type(value).__hash__ is str.__hash__:
        encoded = value.encode("utf-8", "surrogatepass")
        return crc32(encoded) | crc32(encoded[::-1]) << 29
    if type(value) is bytes:
        return crc32(value) | crc32(value[::-1]) << 29
    if type(value) is tuple:
        return builtins.hash(tuple(map(steady_hash, value)))
    if isinstance(value, builtins.frozenset) and type(value).__hash__ is frozenset.__hash__:
        return builtins.hash(tuple(sorted(map(steady_hash, value))))
    return builtins.hash(value)


def _ordering(operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def operated(left: Any, right: Any, /) -> Any:
        result = operate(left, right)
        if type(result) is not builtins.set or result is left:
            return result
        items = itertools.chain(_ordered(left), _ordered(right))
        return OrderedSet(item for item in items if item in result)

    return operated


_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    f"__simulated_{name}__": _ordering(operate)
    for name, operate in {
        "BitOr": operator.or_, "BitAnd": operator.and_, "Sub": operator.sub,
        "BitXor": operator.xor, "iBitOr": operator.ior, "iBitAnd": operator.iand,
        "iSub": operator.isub, "iBitXor": operator.ixor,
    }.items()
}  # fmt: skip
"""The functions that replace operators in programs, by name. An `i` before the operator's name
means the in-place form, such as `|=`."""


class _Sets(ast.NodeTransformer):
    """Rewrites a syntax tree so that sets are ordered.

    Set displays and comprehensions become ordered sets. An operator whose result may be a set
    becomes a call of a function. Annotations stay as they are.
    """

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return self._operated(node, "", node.op, node.left, node.right) or node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        before = ast.copy_location(ast.Name(id=node.target.id, ctx=ast.Load()), node)
        value = self._operated(node, "i", node.op, before, node.value)
        if value is None:
            return node
        return ast.copy_location(ast.Assign(targets=[node.target], value=value), node)

    def _operated(
        self, node: ast.AST, prefix: str, op: ast.operator, left: ast.expr, right: ast.expr
    ) -> ast.expr | None:
        name = f"__simulated_{prefix}{type(op).__name__}__"
        if name not in _OPERATORS or any(isinstance(each, ast.Constant) for each in (left, right)):
            return None
        call = ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=[left, right], keywords=[])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._without_returns(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._without_returns(node)

    def _without_returns(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        returns, node.returns = node.returns, None
        self.generic_visit(node)
        node.returns = returns
        return node

    def visit_Set(self, node: ast.Set) -> ast.AST:
        self.generic_visit(node)
        items = ast.Tuple(elts=node.elts, ctx=ast.Load())
        return self._call(node, items)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        self.generic_visit(node)
        return self._call(node, ast.GeneratorExp(elt=node.elt, generators=node.generators))

    def _call(self, node: ast.expr, argument: ast.expr) -> ast.AST:
        if isinstance(node, ast.SetComp) and any(g.is_async for g in node.generators):
            items = ast.ListComp(elt=node.elt, generators=node.generators)
            argument = items
        name = ast.Name(id=_MAKE_SET, ctx=ast.Load())
        call = ast.Call(func=name, args=[argument], keywords=[])
        return ast.fix_missing_locations(ast.copy_location(call, node))


def compile_ordered(source: bytes, path: str) -> Any:
    """Compile a module of a program, with ordered sets in place of real ones."""
    tree = ast.parse(source, path)
    return compile(_Sets().visit(tree), path, "exec", dont_inherit=True)


NAMES: Final[dict[str, Any]] = {
    _MAKE_SET: OrderedSet,
    "set": OrderedSet,
    "frozenset": OrderedFrozenSet,
    "hash": steady_hash,
    **_OPERATORS,
}
"""The builtins that programs get instead of Python's own."""
