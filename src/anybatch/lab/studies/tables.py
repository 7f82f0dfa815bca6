"""Tables of a TOML file, read key by key. Missing, wrong or unread keys are refused by name."""

import difflib
import math
from typing import Any, TypeVar

from anybatch.errors import ConfigError

Value = TypeVar("Value")


class Table:
    """A table, and its place in the file for error messages."""

    def __init__(self, content: object, where: str) -> None:
        self.where = where
        if not isinstance(content, dict):
            raise ConfigError(f"{where} = {content!r}: must be a table")
        self._content: dict[str, Any] = dict(content)
        self._known: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def names(self) -> list[str]:
        return list(self._content)

    def take(self, key: str, default: Any = None) -> Any:
        """A value of any kind; `default` if the key is missing."""
        self._known.add(key)
        return self._content.get(key, default)

    def all(self) -> dict[str, Any]:
        """The whole table, unchanged."""
        self._known |= self._content.keys()
        return dict(self._content)

    def plain(self, key: str) -> dict[str, Any]:
        """A table that is checked elsewhere; empty if the key is missing."""
        return Table(self.take(key, {}), f"{self.where}.{key}").all()

    def table(self, key: str, default: dict[str, Any] | None = None) -> "Table":
        return Table(self._value(key, default, dict, "a table"), f"{self.where}.{key}")

    def tables(self, key: str) -> "dict[str, Table]":
        """The tables within a table, by name; none if the key is missing."""
        inner = Table(self.take(key, {}), f"{self.where}.{key}").all()
        return {name: Table(content, f"{self.where}.{key}.{name}") for name, content in inner.items()}

    def list_of_tables(self, key: str, *, required: bool = False) -> "list[Table]":
        found = self._value(key, None if required else [], list, f"a list of tables, [[{key}]]")
        return [Table(content, f"{self.where}.{key}[{place}]") for place, content in enumerate(found, 1)]

    def lists(self, key: str) -> dict[str, list[Any]]:
        """A table whose values are lists that are not empty; none if the key is missing."""
        table = Table(self.take(key, {}), f"{self.where}.{key}")
        return {name: table._distinct(name, None, (object,), "a list") for name in table.names()}

    def factors(self, key: str) -> dict[str, list[float]]:
        """A table of lists of positive numbers; none if the key is missing."""
        table = Table(self.take(key, {}), f"{self.where}.{key}")
        what = "a list of positive numbers"
        found = {name: table._distinct(name, None, (int, float), what) for name in table.names()}
        for name, values in found.items():
            if not all(0 < value < math.inf for value in values):
                raise table._wrong(name, what)
        return {name: [float(value) for value in values] for name, values in found.items()}

    def text(self, key: str, default: str | None = None) -> str:
        return self._value(key, default, str, "a string")

    def words(self, key: str) -> str:
        """A text to be read, which is not empty."""
        value = self.text(key)
        if not value.strip():
            raise self._wrong(key, "a string that is not empty")
        return value

    def count(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        what = f"a whole number, at least {least}"
        value = self._value(key, default, int, what)
        if value < least or isinstance(value, bool):
            raise self._wrong(key, what)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default, (int, float), "a number")
        if isinstance(value, bool) or not 0 <= value < math.inf:
            raise self._wrong(key, "a number that is not negative")
        return float(value)

    def choice(self, key: str, among: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in among:
            raise self._wrong(key, f"one of {', '.join(among)}")
        return value

    def texts(self, key: str, default: list[str] | None = None) -> list[str]:
        return self._distinct(key, default, (str,), "a list of strings")

    def choices(self, key: str, among: tuple[str, ...]) -> list[str]:
        values = self.texts(key)
        for value in values:
            if value not in among:
                raise ConfigError(
                    f"{self.where}.{key}: there is no {value!r}; the names are {', '.join(among)}"
                )
        return values

    def counts(self, key: str) -> list[int]:
        values = self._distinct(key, None, (int,), "a list of whole numbers")
        if min(values) < 0:
            raise self._wrong(key, "a list of whole numbers that are not negative")
        return values

    def numbers(self, key: str, *, length: int) -> list[float]:
        values = self._values(key, None, (int, float), f"a list of {length} numbers")
        if len(values) != length or not all(map(math.isfinite, values)):
            raise self._wrong(key, f"a list of {length} numbers")
        return [float(value) for value in values]

    def validate_all_read(self) -> None:
        """Refuse keys that were not read: a misspelled name must not be ignored."""
        for key in self._content.keys() - self._known:
            near = difflib.get_close_matches(key, self._known, n=1)
            hint = (
                f"; did you mean {near[0]}?" if near else f"; the fields are {', '.join(sorted(self._known))}"
            )
            raise ConfigError(f"{self.where}: there is no field {key}{hint}")

    def _value(
        self, key: str, default: Value | None, kind: type[Value] | tuple[type[Value], ...], what: str
    ) -> Value:
        value = self.take(key, default)
        if value is None:
            near = difflib.get_close_matches(key, self._content, n=1)
            hint = f" (there is {near[0]})" if near else ""
            raise ConfigError(f"{self.where}: {key} is missing{hint}; it must be {what}")
        if not isinstance(value, kind):
            raise self._wrong(key, what)
        return value

    def _values(self, key: str, default: list[Any] | None, kinds: tuple[type, ...], what: str) -> list[Any]:
        values = self._value(key, default, list, what)
        fits = all(
            isinstance(value, kinds) and (object in kinds or not isinstance(value, bool)) for value in values
        )
        if not values or not fits:
            raise self._wrong(key, f"{what}, at least one")
        return values

    def _distinct(self, key: str, default: list[Any] | None, kinds: tuple[type, ...], what: str) -> list[Any]:
        """A list in which nothing is repeated, since each of its values gives cells of its own."""
        values = self._values(key, default, kinds, what)
        for place, value in enumerate(values):
            if value in values[:place]:
                raise ConfigError(f"{self.where}: {key} = {values!r} must not repeat {value!r}")
        return values

    def _wrong(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self.where}: {key} = {self._content.get(key)!r} must be {what}")
