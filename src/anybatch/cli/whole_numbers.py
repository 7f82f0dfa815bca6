"""tyro's reading of integer flags: 1e6, 10k, 2.5M and 1_000_000 too."""

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from anybatch.config.whole_number import whole_number

WHOLE_NUMBERS = ConstructorRegistry()
"""Used as `with WHOLE_NUMBERS:`; applies to every integer of a flag, single, optional or in a list."""


@WHOLE_NUMBERS.primitive_rule
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
