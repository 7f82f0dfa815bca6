"""Which settings code reads: `config.update.epochs` is a read of `UpdateConfig.epochs`, by whatever name.

A value is known to be a config where an annotation says so, of a parameter, a field, a property or what a
function returns, and where it is assigned from one that is known. What cannot be followed is no read.
"""

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

Read = tuple[type, str]
"""The config class through which a setting was reached, and the setting's name."""
Kinds = frozenset[type]
UNKNOWN: Kinds = frozenset()


def settings_read(source: str, module_names: dict[str, Any]) -> set[Read]:
    """Every setting that the source of a module reads; `module_names` are what the module has."""
    return set(_Reader(module_names).reads(ast.parse(source), {}))


def is_read(kind: type, name: str, reads: set[Read]) -> bool:
    """Whether the setting `name` of `kind` is read, also through a subclass or the class it comes from."""
    return any(
        name == read and (issubclass(kind, through) or issubclass(through, kind)) for through, read in reads
    )


class _Reader:
    """Follows configs through a module: `known` has the classes of the names in a function."""

    def __init__(self, module_names: dict[str, Any]) -> None:
        self._module_names = module_names

    def reads(self, node: ast.AST, known: dict[str, Kinds]) -> Iterator[Read]:
        if isinstance(node, ast.ClassDef):
            known = known | {"self": kinds_of(self._module_names.get(node.name))}
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            known = known | {
                argument.arg: self._annotated(argument.annotation)
                for argument in arguments
                if argument.arg != "self"
            }
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            for kind in self._kinds(node.value, known):
                if node.attr in settings_of(kind):
                    yield kind, node.attr
        for child in ast.iter_child_nodes(node):
            yield from self.reads(child, known)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, known)

    def _assign(self, target: ast.expr, value: ast.expr, known: dict[str, Kinds]) -> None:
        if isinstance(target, ast.Name):
            known[target.id] = self._kinds(value, known)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for part, part_value in zip(target.elts, value.elts, strict=True):
                self._assign(part, part_value, known)

    def _kinds(self, node: ast.expr, known: dict[str, Kinds]) -> Kinds:
        match node:
            case ast.Name():
                return known.get(node.id, UNKNOWN)
            case ast.Attribute():
                owners = self._kinds(node.value, known)
                return UNKNOWN.union(*(kinds_of_attribute(owner, node.attr) for owner in owners))
            case ast.Call():
                called = self._evaluated(node.func)
                return kinds_of(called if inspect.isclass(called) else hints_of(called).get("return"))
            case _:
                return UNKNOWN

    def _annotated(self, annotation: ast.expr | None) -> Kinds:
        hint = None if annotation is None else self._evaluated(annotation)
        return kinds_of(self._evaluated(ast.parse(hint).body[0].value) if isinstance(hint, str) else hint)

    def _evaluated(self, node: ast.expr) -> Any:
        try:
            return eval(ast.unparse(node), dict(self._module_names))
        except (NameError, AttributeError, TypeError, RuntimeError):  # the last is of super()
            return None


def kinds_of(hint: Any) -> Kinds:
    """The classes of the package that a value of a type can have."""
    if isinstance(hint, TypeVar):
        return UNKNOWN.union(*map(kinds_of, hint.__constraints__ or (hint.__bound__,)))
    if get_origin(hint) in (Union, types.UnionType):
        return UNKNOWN.union(*map(kinds_of, get_args(hint)))
    if get_origin(hint) is Annotated:
        return kinds_of(get_args(hint)[0])
    kind = get_origin(hint) or hint
    is_ours = inspect.isclass(kind) and kind.__module__.startswith("anybatch.")
    return frozenset({kind}) if is_ours else UNKNOWN


def kinds_of_attribute(owner: type, name: str) -> Kinds:
    """The classes of an attribute, where the class or, as after `isinstance`, a subclass declares it."""
    for kind in with_subclasses(owner):
        declared = inspect.getattr_static(kind, name, None)
        if isinstance(declared, property):
            return kinds_of(hints_of(declared.fget).get("return"))
        hints = hints_of(kind) | taken_over(kind)
        if name in hints:
            return kinds_of(hints[name])
    return UNKNOWN


def taken_over(kind: type) -> dict[str, Any]:
    """The types of attributes that `__init__` takes over from its arguments, as in `self.config = config`."""
    if dataclasses.is_dataclass(kind) or not inspect.isfunction(kind.__init__):
        return {}
    hints = hints_of(kind.__init__)
    return {
        node.targets[0].attr: hints.get(node.value.id)
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind.__init__))))
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and isinstance(node.value, ast.Name)
    }


def hints_of(declared: Any) -> dict[str, Any]:
    try:
        return get_type_hints(declared)
    except (NameError, TypeError):
        return {}


def settings_of(kind: type) -> set[str]:
    """The settings of a config class and of those that it may turn out to be."""
    if not kind.__module__.startswith("anybatch.config"):
        return set()
    return {setting.name for each in with_subclasses(kind) for setting in dataclasses.fields(each)}


def with_subclasses(kind: type) -> Iterator[type]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from with_subclasses(subclass)
