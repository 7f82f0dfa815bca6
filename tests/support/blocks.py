"""The code blocks of a page, and how the tests read them.

```bash                  every line that begins with `anybatch` is run, in a folder of the page's own;
                         after `$ anybatch …` stands what it prints
```bash not-run: why     nothing is run, but every `anybatch` line must be one that could be
```python                run as a program, or written to the file that a first line `# name.py` names
```toml                  written to the file that the first line names
```text                  nothing to run: a formula or a drawing
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITTEN = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"]
PAGES = [ROOT / "README.md", *sorted(WRITTEN)]
FENCE = re.compile(r"^```(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)
NOT_RUN = re.compile(r" not-run: (?P<reason>\S.*)")
LANGUAGES = {"bash", "python", "toml", "text"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    rest: str
    """What stands behind the language."""

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        marked = NOT_RUN.fullmatch(self.rest)
        return marked["reason"] if marked else None

    @property
    def file(self) -> str | None:
        """The file that the first line names."""
        named = re.match(r"# ([\w-]+\.(?:py|toml))\n", self.text)
        return named[1] if named else None

    @property
    def _shown(self) -> str | None:
        return self.text.partition("\n")[2] if self.text.startswith("$ ") else None

    @property
    def lines(self) -> list[list[str]]:
        """The words of each command of a shell block."""
        if self.language != "bash":
            return []
        whole = re.sub(r"\\\n\s*", "", self.text).splitlines()  # lines that go on behind a backslash
        lines = whole if self._shown is None else whole[:1]
        parts = [part for line in lines for part in re.split(r"\|\||&&", line.removeprefix("$ "))]
        return [shlex.split(part, comments=True) for part in parts]

    @property
    def commands(self) -> list["Command"]:
        """The `anybatch` lines of a shell block, and what torchrun is told to start."""
        shown = self._shown
        started = [
            found[found.index("-m") + 1 :] if {"torchrun", "-m"} <= {*found} else found
            for found in self.lines
        ]
        return [Command(tuple(found[1:]), shown) for found in started if found[:1] == ["anybatch"]]


@dataclass(frozen=True)
class Command:
    """The words after `anybatch`, and what the page says that it prints."""

    words: tuple[str, ...]
    shown: str | None

    @property
    def name(self) -> str:
        return self.words[0]

    @property
    def flags(self) -> list[str]:
        return [word.partition("=")[0] for word in self.words[1:] if word.startswith("--")]


def blocks_of(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text())
    return [Block(fence["language"], fence["text"], fence["rest"]) for fence in found]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
