"""tyro's error boxes as one sentence, like every other error of the command line."""

import contextlib
import io
import os
import re
from collections.abc import Collection, Iterator
from itertools import groupby

from anybatch.config.serialization import meant_elsewhere
from anybatch.errors import UserError

FRAME = "│╭╮╰╯─ "
COLORS = re.compile(r"\x1b\[[0-9;]*m")
RULES = {
    r"'(?P<word>.*)' must be a whole number": "must be a whole number",
    r"Could not find valid parse for arguments: \['(?P<word>.*)'\]": "must be whole numbers",
    r"'(?P<word>.*)' must have at most (?P<digits>\d+) digits": "must have at most {digits} digits",
    r"could not convert.* '(?P<word>.*)'": "must be a number",
    r"no type matching \{none\}\|FLOAT could be .* \['(?P<word>.*)'\]\.": "must be a number or none",
    r"no type matching \{none\}\|INT could be .* \['(?P<word>.*)'\]\.": "must be a whole number or none",
    r"no type matching INT\|\{(?P<choices>[\w,-]+)\} could be .* \['(?P<word>.*)'\]\.": (
        "must be a whole number or one of {choices}"
    ),
}
"""tyro's messages about an invalid value of a flag, and the rule it breaks."""
UNKNOWN = "Unrecognized options: "
NEGATION = re.compile(r"(?:^|(?<=\.))no-")
"""What turns a switch off: --no-overlap, --record.no-tensorboard."""
NO_VALUE = re.compile(r"Missing value for argument '(?P<flag>.*)'\..*")
NO_PAIRS = re.compile(r"Error parsing (?P<flag>--[\w.-]+): Failed to parse key-value pairs!")
NO_CHOICE = re.compile(
    r"invalid choice '(?P<word>.*)' for argument '(?P<flag>.*)'\. Expected one of \((?P<all>.*)\)\."
)


@contextlib.contextmanager
def as_user_error(known: Collection[str] = (), of_training: Collection[str] = ()) -> Iterator[None]:
    """Turn the box that tyro prints before it exits into a UserError.

    `known` are the names of the command's flags; a flag that another library has is answered with one of
    them. `of_training` are the names of settings that have no effect on the command.
    """
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box), one_line():
            yield
    except SystemExit:
        raise UserError(sentence_in(box.getvalue(), known, of_training)) from None


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


def sentence_in(box: str, known: Collection[str] = (), of_training: Collection[str] = ()) -> str:
    """The error and the flags that may have been meant, without the frame and the help around it."""
    plain = COLORS.sub("", box)  # on a terminal the frame is colored
    _title, *lines = [line.strip(FRAME) for line in plain.splitlines()] or [""]
    rulers = [not line.strip("-") for line in lines]  # drawn with - if the terminal has no ─
    blocks = groupby(zip(rulers, lines, strict=True), key=lambda pair: pair[0])
    wrong = next((" ".join(line for _, line in block) for is_ruler, block in blocks if not is_ruler), "")
    if wrong.startswith(UNKNOWN):
        words = wrong.removeprefix(UNKNOWN).split(", ")
        similar = [line.split()[0].rstrip(",") for line in lines if line.startswith("--") and line.strip("-")]
        names = [word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")]
        for name in names:
            if NEGATION.sub("", name).replace("_", "-") in of_training:
                return without_effect(name, known)
        ours = [f"--{name}" for name in meant_elsewhere(names, known)]
        return f"{UNKNOWN}{' '.join(words)}; {hint(words, ours or similar)}"
    return plain_rule(wrong) or re.sub(r"^Error parsing config[\w.-]*: ", "", wrong)


def without_effect(name: str, known: Collection[str]) -> str:
    """The refusal of a setting of training, with the flags of the command that are called the same."""
    last = name.rpartition(".")[2]
    meant = [f"--{flag}" for flag in sorted(known) if flag.rpartition(".")[2] == last]
    way_on = f"did you mean {', '.join(meant)}?" if meant else "--help lists the flags that have one"
    return f"--{name} is a setting of training and has no effect here; {way_on}"


def hint(words: list[str], meant: list[str]) -> str:
    """What to do about words that no flag takes; `meant` are the flags that may have been meant."""
    if meant:
        return f"did you mean {', '.join(meant)}?"
    return f"{'' if words[0].startswith('-') else 'no flag takes it as a value; '}--help lists the flags"


def plain_rule(wrong: str) -> str | None:
    """What tyro says about the value of a flag in our own words; None where it is about something else."""
    for said, rule in RULES.items():
        unfit = re.fullmatch(rf"Error parsing (?P<flag>--[\w.-]+): {said}", wrong)
        if unfit:
            words = unfit["word"].replace("', '", " ")
            return f"{unfit['flag']} {words}: {rule.format(**unfit.groupdict())}"
    if missing := NO_VALUE.fullmatch(wrong):
        return f"{missing['flag']} needs a value"
    if odd := NO_PAIRS.fullmatch(wrong):
        return f"{odd['flag']} must be pairs of a name and a value, such as num_levels 200"
    if unknown := NO_CHOICE.fullmatch(wrong):
        choices = ", ".join(choice.strip("'") for choice in unknown["all"].rstrip(",").split(", "))
        return f"{unknown['flag']} {unknown['word']}: must be one of {choices}"
    return None
