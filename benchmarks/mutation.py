"""Small mistakes made in a module on purpose (mutants): a comparison that is off by one, a sign, a number, a word.

The operators are the usual ones (Offutt et al. 1996, "An Experimental Determination of Sufficient Mutant Operators":
relations, arithmetic, logic, constants), and ``min`` for ``max``, of which solvers are full. Left alone is what no test
can or should tell: docstrings, annotations, decorators, assertions, and what an error says.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_RELATIONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax", "argmax": "argmin"}


@dataclass(frozen=True)
class Place:
    """Where a mistake can be made: the node's number in the order of :func:`ast.walk`, and which of its parts."""

    node: int
    part: int
    line: int
    what: str


def places(tree: ast.Module) -> list[Place]:
    """Every one there is, in the order of the lines."""
    left_alone = {id(node) for root in _untested(tree) for node in ast.walk(root)}
    found = []
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in left_alone:
            found += [Place(number, part, getattr(node, "lineno", 0), what) for part, what in _mistakes(node)]
    return sorted(found, key=lambda place: (place.line, place.node, place.part))


def mutant(tree: ast.Module, place: Place) -> str:
    """The source of the module with one mistake in it."""
    changed = copy.deepcopy(tree)
    node = next(node for number, node in enumerate(ast.walk(changed)) if number == place.node)
    _make(node, place.part)
    return ast.unparse(changed)


def _untested(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert | ast.Raise):
            yield node
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from node.decorator_list
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            yield node.returns
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp) and _is_type(node):
            yield node


def _is_type(node: ast.Assign) -> bool:
    """``Pair = tuple[int, int]``, ``Told = Joined | Left``: a name in capitals and small letters for a type."""
    name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
    return name[:1].isupper() and not name.isupper()


def _mistakes(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(part, what it becomes) for each mistake that can be made at this node."""
    if isinstance(node, ast.Compare):
        for part, relation in enumerate(node.ops):
            yield part, f"{type(relation).__name__} to {_RELATIONS[type(relation)].__name__}"
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield 0, f"{type(node.op).__name__} to {_ARITHMETIC[type(node.op)].__name__}"
    elif isinstance(node, ast.BoolOp):
        yield 0, "and to or" if isinstance(node.op, ast.And) else "or to and"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield 0, f"without {type(node.op).__name__}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield 0, f"{node.value} to {_other(node.value)}"
    elif isinstance(node, ast.Call) and _name(node.func) in _CALLS:
        yield 0, f"{_name(node.func)} to {_CALLS[_name(node.func)]}"
    elif isinstance(node, ast.Break | ast.Continue):
        yield 0, "break to continue" if isinstance(node, ast.Break) else "continue to break"


def _make(node: ast.AST, part: int) -> None:
    if isinstance(node, ast.Compare):
        node.ops[part] = _RELATIONS[type(node.ops[part])]()
    elif isinstance(node, ast.BinOp | ast.AugAssign):
        node.op = _ARITHMETIC[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node.op = ast.UAdd()
    elif isinstance(node, ast.UnaryOp):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Constant):
        node.value = _other(node.value)  # type: ignore[arg-type]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        node.func.id = _CALLS[node.func.id]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node.func.attr = _CALLS[node.func.attr]
    else:
        node.__class__ = ast.Continue if isinstance(node, ast.Break) else ast.Break  # type: ignore[assignment]


def _other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    assert isinstance(value, int | float)
    return value + 1


def _name(function: ast.expr) -> str:
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
