"""The frame of every page, a self-contained HTML file, and the elements that pages share."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from anybatch.lab.charts import palette
from anybatch.lab.pages.markup import Content, Markup, element, joined, void

GENERATOR = '<meta name="generator" content="anybatch">'
"""Marks a page as written by anybatch."""
VERSIONS = ("anybatch", "git_commit", "python", "torch")
SUBJECT = "anybatch-subject"


def page(
    *,
    title: str,
    kicker: str,
    lead: Content,
    body: Iterable[Content],
    foot: Content,
    styles: Iterable[str] = (),
    scripts: Iterable[str] = (),
    about: str = "",
) -> str:
    """A whole page: its head, the title with its first sentence, and what follows.

    `styles` and `scripts` are files in this folder that only this page needs. `about` says what the page is
    about, so that it is not replaced by one about something else.
    """
    dark = f"@media (prefers-color-scheme:dark){{:root{{{palette.custom_properties(dark=True)}}}}}"
    style = f":root{{{palette.custom_properties(dark=False)}}}{dark}\n{files('style.css', *styles)}"
    head = joined(
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(GENERATOR),
        about_mark(about) if about else None,
        Markup('<link rel="icon" href="data:,">'),  # otherwise a browser requests one from a server
        element("title", title),
        element("style", Markup(style)),
    )
    top = element(
        "header",
        element("p", kicker, class_="kicker"),
        element("h1", title),
        element("p", lead, class_="lead"),
    )
    script = element("script", Markup(files("hover.js", *scripts)))
    content = joined(top, element("main", *body), element("footer", foot), script)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{content}</body></html>\n'


def about_mark(subject: str) -> Markup:
    """The part of a page's head that says what it is about."""
    return void("meta", name_=SUBJECT, content=subject)


def section(title: str, *contents: Content) -> Markup:
    return element("section", element("h2", title), *contents)


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Content]],
    *,
    numbers: Iterable[int] = (),
    kind: str = "plain",
) -> Markup:
    """A table whose first column names its rows. `numbers` are the columns aligned to the right.

    On a phone, each row of a table of kind `stacked` becomes a block with its labels; others scroll.
    """
    aligned = set(numbers)
    heads = (
        element("th", name, class_="number" if place in aligned else None)
        for place, name in enumerate(header)
    )
    body = (element("tr", *_cells(header, row, aligned)) for row in rows)
    content = joined(element("thead", element("tr", *heads)), element("tbody", *body))
    return element("div", element("table", content, class_=kind), class_="scroll")


def _cells(header: Sequence[str], row: Sequence[Content], aligned: set[int]) -> list[Markup]:
    first, *others = row
    return [
        element("th", first),
        *(
            element("td", cell, class_="number" if place in aligned else None, data_label=header[place])
            for place, cell in enumerate(others, 1)
        ),
    ]


def plan_rows(plan_json: dict[str, object]) -> Markup:
    """The table *number · tuned at · this run · rule* of a recorded plan, and its notes."""
    rows: list[list[Content]] = []
    recorded = plan_json.get("rows")
    for row in recorded if isinstance(recorded, list) else []:
        here = row["this_run"]
        shown = element("strong", here) if here != row["tuned_at"] else here
        rows.append([row["number"], row["tuned_at"], shown, element("span", row["rule"], class_="soft")])
    notes = plan_json.get("warnings")
    sentences = (
        element("p", str(note), class_="soft") for note in (notes if isinstance(notes, list) else [])
    )
    return joined(
        table(("hyperparameter", "tuned at", "this run", "rule"), rows, kind="stacked plan"), *sentences
    )


def versions(facts: Mapping[str, Any], *others: str, names: Sequence[str] = VERSIONS) -> str:
    """What something was made with, by its recorded facts, and what else is to be listed."""
    known = [f"{name.replace('_', ' ')} {facts[name]}" for name in names if facts.get(name) is not None]
    return ", ".join([*known, *others])


def command(words: Sequence[str]) -> Markup:
    return element("pre", element("code", shlex.join(words)))


def files(*names: str) -> str:
    """Files of this folder, one after another."""
    folder = resources.files("anybatch.lab.pages")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
