"""Small wrong changes, made by rule: one node of a module's syntax tree at a time."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_NOT_BEHAVIOUR = {"__repr__", "__slots__"}


class Change(NamedTuple):
    """One change of a module: which of its nodes, in which of the ways there are, in which line,
    and what it does."""

    number: int
    way: int
    line: int
    what: str


def changes(source: str) -> Iterator[Change]:
    """Every change that the rules know, in the order of the source."""
    for number, (node, path) in enumerate(_places(ast.parse(source))):
        for way in range(_ways(node)):
            changed = _change(copy.deepcopy(node), way)
            yield Change(number, way, node.lineno, f"{path}: {_shown(node)}  ->  {_shown(changed)}")  # type: ignore[attr-defined]


def changed_source(source: str, change: Change) -> str:
    """The module as it is then, without its comments."""
    tree = ast.parse(source)
    node, _ = next(itertools.islice(_places(tree), change.number, None))
    replacement = _change(node, change.way)
    if replacement is not node:
        _put(tree, node, replacement)
    return ast.unparse(ast.fix_missing_locations(tree))


def _places(tree: ast.AST, path: str = "") -> Iterator[tuple[ast.AST, str]]:
    """The nodes that may be changed: no annotations, texts, log lines or error messages."""
    for child in ast.iter_child_nodes(tree):
        if _is_left_out(child, tree):
            continue
        named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
        inside = f"{path}.{child.name}".lstrip(".") if named else path  # type: ignore[attr-defined]
        if _ways(child):
            yield child, inside or "module"
        yield from _places(child, inside)


def _is_left_out(node: ast.AST, parent: ast.AST) -> bool:
    if isinstance(node, (ast.JoinedStr, ast.arguments, ast.alias, ast.keyword)):
        return not isinstance(node, ast.keyword) or isinstance(parent, ast.ClassDef)
    if isinstance(parent, (ast.AnnAssign, ast.FunctionDef)) and node in (
        getattr(parent, "annotation", None),
        getattr(parent, "returns", None),
    ):
        return True
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return False  # it may be removed; what it says is left out below
    if isinstance(parent, ast.Raise):
        return True
    if isinstance(node, ast.Expr):
        text = ast.unparse(node.value)
        return isinstance(node.value, ast.Constant) or text.startswith("logger.")
    if isinstance(node, ast.FunctionDef) and node.name in _NOT_BEHAVIOUR:
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id in _NOT_BEHAVIOUR for target in node.targets)
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _ways(node: ast.AST) -> int:
    """In how many ways this node can be changed."""
    if isinstance(node, ast.Compare):
        return sum(type(operator) in _COMPARISONS for operator in node.ops)
    if isinstance(node, ast.BinOp):
        return int(type(node.op) in _ARITHMETIC)
    if isinstance(node, ast.Constant):
        return int(type(node.value) is int)
    if isinstance(node, ast.Call):
        positional = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        return int(
            len(positional) >= 2
            and ast.unparse(node.func) not in {"max", "min"}
            and ast.dump(node.args[0]) != ast.dump(node.args[1])
        )
    if isinstance(node, ast.Assign):
        return int(all(isinstance(target, ast.Attribute) for target in node.targets))
    if isinstance(node, ast.Return):
        return int(node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None))
    if isinstance(node, ast.Expr):
        return int(isinstance(node.value, ast.Call))
    return int(
        isinstance(node, (ast.BoolOp, ast.If, ast.While, ast.IfExp, ast.AugAssign, ast.Raise, ast.Break, ast.Continue))
    )


def _change(node: ast.AST, way: int) -> ast.AST:
    """The node changed in place, or another to stand in its place."""
    if isinstance(node, ast.Compare):
        known = [at for at, operator in enumerate(node.ops) if type(operator) in _COMPARISONS]
        node.ops[known[way]] = _COMPARISONS[type(node.ops[known[way]])]()
    elif isinstance(node, ast.BinOp):
        node.op = _ARITHMETIC[type(node.op)]()
    elif isinstance(node, ast.Constant):
        node.value += 1  # type: ignore[operator]
    elif isinstance(node, ast.Call):
        node.args[0], node.args[1] = node.args[1], node.args[0]
    elif isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return):
        node.value = ast.Constant(None)
    else:
        return ast.Pass()  # the statement is gone
    return node


def _put(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for _, value in ast.iter_fields(parent):
            if isinstance(value, list) and old in value:
                value[value.index(old)] = new
                return


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node.test if isinstance(node, (ast.If, ast.While)) else node)
    return text if len(text) <= 90 else f"{text[:87]}…"
