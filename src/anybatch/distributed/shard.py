"""The environments of a run that a process owns."""

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor


@dataclass(frozen=True)
class Shard:
    """A contiguous slice of the environments of a run, which are numbered from 0 over all processes."""

    first: int
    """Number of the first environment in it."""
    count: int
    total: int
    """Environments of the whole run."""

    @classmethod
    def whole(cls, total: int) -> "Shard":
        """All environments in one process."""
        return cls(0, total, total)

    @classmethod
    def part(cls, total: int, *, index: int, parts: int) -> "Shard":
        """One of `parts` shards, which differ by at most one environment; the first ones are larger."""
        return cls.whole(total).split(parts)[index]

    def split(self, parts: int) -> list["Shard"]:
        """Shards of this shard, in order, that differ by at most one environment."""
        size, larger = divmod(self.count, parts)
        ends = [size * part + min(part, larger) for part in range(parts + 1)]
        return [Shard(self.first + start, end - start, self.total) for start, end in pairwise(ends)]

    @property
    def envs(self) -> slice:
        """The slice of its environments along an axis of all environments."""
        return slice(self.first, self.first + self.count)

    @property
    def is_whole(self) -> bool:
        return self.count == self.total

    def local_indices(self, indices: Tensor) -> Tensor:
        """Of indices into flattened [… · total], those of its environments, as indices into [… · count]."""
        if self.is_whole:
            return indices
        env = indices % self.total
        is_local = (env >= self.first) & (env < self.first + self.count)
        rows = indices[is_local].div(self.total, rounding_mode="floor")
        return rows * self.count + (env[is_local] - self.first)
