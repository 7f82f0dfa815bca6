"""The docstrings of fields, which are the help of their flags."""

import ast
import dataclasses
import inspect
from functools import cache
from textwrap import dedent


@cache
def documented(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, on one line. Fields without one are absent."""
    docs: dict[str, str] = {}
    for base in kind.__bases__:
        if dataclasses.is_dataclass(base):
            docs |= documented(base)
    body = ast.parse(dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
        ):
            assert isinstance(below.value, ast.Constant)
            docs[field.target.id] = " ".join(str(below.value.value).split())
    return docs
