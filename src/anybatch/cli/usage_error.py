"""tyro's error boxes as one sentence, like every other error of the command line."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from itertools import groupby

from anybatch.errors import UserError

FRAME = "│╭╮╰╯─ "
COLORS = re.compile(r"\x1b\[[0-9;]*m")
RULES = {
    r"'(?P<word>.*)' must be a whole number": "must be a whole number",
    r"Could not find valid parse for arguments: \['(?P<word>.*)'\]": "must be whole numbers",
    r"'(?P<word>.*)' must have at most (?P<digits>\d+) digits": "must have at most {digits} digits",
    r"could not convert.* '(?P<word>.*)'": "must be a number",
    r"no type matching \{None\}\|FLOAT could be .* \['(?P<word>.*)'\]\.": "must be a number or None",
    r"no type matching \{None\}\|INT could be .* \['(?P<word>.*)'\]\.": "must be a whole number or None",
}
"""tyro's messages about an invalid value of a flag, and the rule it breaks."""


@contextlib.contextmanager
def as_user_error() -> Iterator[None]:
    """Turn the box that tyro prints before it exits into a UserError."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box), one_line():
            yield
    except SystemExit:
        raise UserError(sentence_in(box.getvalue())) from None


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """A terminal so wide that no sentence is wrapped: tyro would break 1,024 at its comma."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def sentence_in(box: str) -> str:
    """The error and the flags that may have been meant, without the frame and the help around it."""
    plain = COLORS.sub("", box)  # on a terminal the frame is colored
    _title, *lines = [line.strip(FRAME) for line in plain.splitlines()] or [""]
    rulers = [not line.strip("-") for line in lines]  # drawn with - if the terminal has no ─
    blocks = groupby(zip(rulers, lines, strict=True), key=lambda pair: pair[0])
    wrong = next((" ".join(line for _, line in block) for is_ruler, block in blocks if not is_ruler), "")
    meant = [line.split()[0] for line in lines if line.startswith("--")]
    hint = f"; did you mean {', '.join(meant)}?" if meant and wrong.startswith("Unrecognized") else ""
    for said, rule in RULES.items():
        unfit = re.fullmatch(rf"Error parsing (?P<flag>--[\w.-]+): {said}", wrong)
        if unfit:
            words = unfit["word"].replace("', '", " ")
            return f"{unfit['flag']} {words}: {rule.format(**unfit.groupdict())}"
    return re.sub(r"^Error parsing config[\w.-]*: ", "", wrong) + hint
