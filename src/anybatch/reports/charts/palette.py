"""Colors, each for a light and for a dark page.

Neighbors are told apart by readers with any of the three color-vision deficiencies; the tests measure it.
"""

PALETTE: dict[str, tuple[str, str]] = {
    "blue": ("#1553c4", "#3e8ff7"),
    "orange": ("#eb620c", "#f07c4d"),
    "green": ("#01a978", "#32e59f"),
    "pink": ("#bc5fa9", "#ce73b9"),
    "brown": ("#613c10", "#f8df55"),
    "slate": ("#353741", "#d2e1ee"),
    # In order, from the smallest to the largest: of ratios of a batch, or of ages.
    "order1": ("#35a06f", "#fde725"),
    "order2": ("#21918c", "#8fd744"),
    "order3": ("#2f6f8f", "#35b779"),
    "order4": ("#3f4a8a", "#2f9ab0"),
    "order5": ("#440154", "#7474d6"),
    "gray": ("#8a8f98", "#7b828d"),
}
DISTINCT = ("blue", "orange", "green", "pink", "brown", "slate")
ORDERED = ("order1", "order2", "order3", "order4", "order5")


def distinct(number: int) -> tuple[str, bool]:
    """The color of the thing with this number, and whether its line is dashed: after six, dashes begin."""
    return DISTINCT[number % len(DISTINCT)], number >= len(DISTINCT)


def ordered(place: int, count: int) -> str:
    """The color of the thing at this place among `count` that have an order."""
    if count == 1:
        return ORDERED[0]
    return ORDERED[round(place * (len(ORDERED) - 1) / (count - 1))]


def custom_properties(*, dark: bool) -> str:
    """The palette as CSS custom properties: --blue: #…;"""
    return "".join(f"--{name}:{colors[dark]};" for name, colors in PALETTE.items())
