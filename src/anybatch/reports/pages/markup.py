"""HTML built from functions: text is escaped unless it is markup already."""

import html


class Markup(str):
    """Text that is HTML and is inserted as it is."""

    __slots__ = ()


Content = str | Markup | None


def escaped(content: Content) -> Markup:
    """Markup as it is, text escaped, nothing for None."""
    if content is None:
        return Markup()
    return content if isinstance(content, Markup) else Markup(html.escape(content, quote=False))


def joined(*contents: Content) -> Markup:
    return Markup("".join(escaped(content) for content in contents))


def element(name: str, *contents: Content, **attributes: str | None) -> Markup:
    """<name attribute="…">contents</name>; `class_` is class, `aria_label` aria-label, None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{joined(*contents)}</{name}>")
