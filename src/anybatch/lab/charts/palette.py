"""Colors, each for a light and for a dark page.

Neighboring colors are distinguishable with any of the three color-vision deficiencies; the tests measure it.
"""

PALETTE: dict[str, tuple[str, str]] = {
    "blue": ("#1553c4", "#3e8ff7"),
    "orange": ("#eb620c", "#f07c4d"),
    "green": ("#01a978", "#32e59f"),
    "pink": ("#bc5fa9", "#ce73b9"),
    "olive": ("#82783c", "#f8df55"),
    "slate": ("#353741", "#d2e1ee"),
    # In order from the smallest to the largest ratio of a batch, or age.
    "order1": ("#4ec36b", "#fde725"),
    "order2": ("#25ac82", "#c8e020"),
    "order3": ("#20938c", "#8ed645"),
    "order4": ("#297b8e", "#5ac864"),
    "order5": ("#34618d", "#32b67a"),
    "order6": ("#404588", "#1fa187"),
    "order7": ("#482576", "#228d8d"),
    "order8": ("#440154", "#2a788e"),
    "gray": ("#8a8f98", "#7b828d"),
}
DISTINCT = ("blue", "orange", "green", "pink", "olive", "slate")
ORDERED = tuple(name for name in PALETTE if name.startswith("order"))


def distinct(number: int) -> tuple[str, bool]:
    """The color of the item with this number, and whether its line is dashed, as all beyond the sixth are."""
    return DISTINCT[number % len(DISTINCT)], number >= len(DISTINCT)


def ordered(place: int, count: int) -> str:
    """The color of the item at this place among `count` ordered ones."""
    if count == 1:
        return ORDERED[0]
    return ORDERED[round(place * (len(ORDERED) - 1) / (count - 1))]


def custom_properties(*, dark: bool) -> str:
    """The palette as CSS custom properties: --blue: #…;"""
    return "".join(f"--{name}:{colors[dark]};" for name, colors in PALETTE.items())
