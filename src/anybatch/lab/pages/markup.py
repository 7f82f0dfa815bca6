"""HTML built from functions: text is escaped unless it is already markup."""

import html
import json


class Markup(str):
    """Text that is HTML and is inserted unchanged."""

    __slots__ = ()


Content = str | Markup | None


def escaped(content: Content) -> Markup:
    """Markup unchanged, text escaped, nothing for None."""
    if content is None:
        return Markup()
    return content if isinstance(content, Markup) else Markup(html.escape(content, quote=False))


def joined(*contents: Content) -> Markup:
    return Markup("".join(escaped(content) for content in contents))


def element(name: str, *contents: Content, **attributes: str | None) -> Markup:
    """<name attribute="…">contents</name>; `class_` is class, `aria_label` aria-label, None is left out."""
    return Markup(f"<{name}{_written(attributes)}>{joined(*contents)}</{name}>")


def void(name: str, **attributes: str | None) -> Markup:
    """An element that has no end: <input …>."""
    return Markup(f"<{name}{_written(attributes)}>")


def data_element(data: object, **attributes: str | None) -> Markup:
    """Data for the scripts of a page."""
    # No text of a run may end the element.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return element("script", Markup(text.replace("<", "\\u003c")), type="application/json", **attributes)


def _written(attributes: dict[str, str | None]) -> str:
    return "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
