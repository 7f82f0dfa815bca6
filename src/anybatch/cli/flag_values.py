"""tyro's reading of values: 1e6, 10k, 2.5M and 1_000_000 are integers too, and none is no value."""

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from anybatch.config.require import whole_number

FLAG_VALUES = ConstructorRegistry()
"""Used as `with FLAG_VALUES:`; applies to every flag, and to each value of a list."""


@FLAG_VALUES.primitive_rule
def integers(type_info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    if type_info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


@FLAG_VALUES.primitive_rule
def no_value(type_info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """`none` in any capitalization, as the help shows it; tyro alone accepts `None` only."""
    if type_info.type is not type(None):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{none}",
        instance_from_str=lambda words: none(words[0]),
        is_instance=lambda value: value is None,
        str_from_instance=lambda _: ["none"],
    )


def none(word: str) -> None:
    if word.lower() != "none":
        raise ValueError(f"{word!r} must be none")
