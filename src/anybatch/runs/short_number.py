"""Numbers of any size for people to read, such as returns: 0.1235, 21.43, 12,346."""


def short_number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits; a larger one as a whole number, never with an exponent."""
    return f"{value:,.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:,.{digits}g}"
