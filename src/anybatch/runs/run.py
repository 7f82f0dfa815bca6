"""One training run as the loop sees it: reporting, saving and stop requests."""

import logging
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from anybatch.config import RecordConfig, RunConfig
from anybatch.config.serialization import config_to_dict
from anybatch.distributed import collectives, group
from anybatch.envs.episodes import Episode, from_table, to_table
from anybatch.envs.published import on_published_scale
from anybatch.runs import iteration, log, pace
from anybatch.runs.display import RECENT_EPISODES, RECENT_RETURN, Display, Output, Quiet
from anybatch.runs.iteration import OnIteration
from anybatch.runs.log import MetricLog, NoLog
from anybatch.runs.pace import Pace
from anybatch.runs.sinks import open_sinks
from anybatch.runs.stop import GracefulStop
from anybatch.runs.timer import Timer
from anybatch.storage.checkpoint import Checkpoints, Loaded, Snapshot
from anybatch.storage.resharding import gathered
from anybatch.storage.state_tree import StateTree
from anybatch.text import counted, duration_text

logger = logging.getLogger(__name__)

ENV_STEPS_PER_ROW = 2048
"""By default, at least this many env steps make up a row of the log: it takes as long as 100 of them."""
ROWS_OF_A_SHORT_RUN = 100
"""A run that is too short for that gets at least this many rows, if it has as many iterations."""
LONG_ITERATION_SECONDS = 10.0
LONG_RUN_SECONDS = 86_400.0
MEASURED_SECONDS = 5.0
"""Before that, the length of a run is not estimated."""


class Recordable(Protocol):
    """The part of a train state that recording needs."""

    @property
    def env_steps(self) -> int: ...

    @property
    def iterations(self) -> int: ...

    def snapshot(self) -> Snapshot | None:
        """The state to be saved; None at a point that a resume could not continue from."""
        ...


class Evaluate(Protocol):
    """Evaluates a train state at the end of an iteration, if due. Returns metrics."""

    def __call__(self, state: Any, run: "Run") -> Mapping[str, float]: ...


def never_evaluate(state: Any, run: "Run") -> Mapping[str, float]:
    """For runs that are evaluated only at their end."""
    del state, run
    return {}


class Run:
    """Logs, checkpoints, display, timers and the stop request of one run.

    Of several ranks, only rank 0 writes and shows; all of them decide together when to save and to stop.
    """

    def __init__(
        self,
        folder: Path,
        record: RecordConfig,
        *,
        env_id: str = "",
        display: Display | None = None,
        tracked_config: dict[str, Any] | None = None,
    ):
        """`tracked_config` is shown by trackers as the config of the run."""
        self.is_writing = collectives.rank() == 0
        self.folder = folder
        self.env_id = env_id
        self.config = record
        self.display = display or Quiet()
        self.stop = GracefulStop(is_repeated=group.is_under_torchrun(), sentence=self._stopping)
        # Ranks wait for each other within an iteration, so none of them can leave it alone.
        self.pace = Pace(self.stop, self._show_progress, can_be_interrupted=collectives.world_size() == 1)
        self.log = (
            MetricLog(folder, open_sinks(record, folder, tracked_config or {}))
            if self.is_writing
            else NoLog()
        )
        self.timer = Timer()
        self.checkpoints = Checkpoints(folder, keep=record.keep_checkpoints)
        self.evaluate: Evaluate = never_evaluate
        self.on_iteration: OnIteration | None = None
        """The program's own callback."""
        self.recent_returns: deque[float] = deque(maxlen=RECENT_EPISODES)
        self._saved_at, self._saved_iterations = time.monotonic(), 0
        self.saved_env_steps = 0
        """Env steps of the newest checkpoint."""
        self._has_ranks = collectives.world_size() > 1
        """Whether the run has or had several ranks."""
        self._unlogged = Unlogged()
        self._row_is_due = True
        """Whether this iteration ends with a row of the log."""
        self._recorded_at, self._recorded_env_steps = time.perf_counter(), 0
        self.saves_long_iterations = True
        """Whether every iteration is saved that takes long, so that little is lost if it is interrupted."""
        self.total_env_steps = 0
        self.cheaper_preset: str | None = None
        """A preset that this machine is fast enough for, if the run takes days."""
        self._began_at, self._began_env_steps = time.monotonic(), 0
        self._length_was_said = False

    @classmethod
    @contextmanager
    def open(cls, folder: Path, config: RunConfig, *, title: str, output: Output) -> Iterator["Run"]:
        """A run that is shown, stops at signals and closes its files at the end."""
        with output.display(config.total_env_steps, title) as display:
            run = cls(
                folder,
                config.record,
                env_id=config.env,
                display=display,
                tracked_config=config_to_dict(config),
            )
            run.total_env_steps = config.total_env_steps
            # A checkpoint waits for the actors, which would no longer collect while the loop learns.
            run.saves_long_iterations = config.collection is None
            token = pace.CURRENT.set(run.pace)
            try:
                with run.stop, closing(run.log):
                    yield run
            finally:
                pace.CURRENT.reset(token)

    @classmethod
    @contextmanager
    def silent(cls, folder: Path, record: RecordConfig | None = None) -> Iterator["Run"]:
        """A run that shows nothing and leaves signals alone, for tests and benchmarks."""
        run = cls(folder, record or RecordConfig(tensorboard=False))
        with closing(run.log):
            yield run

    def continue_from(self, loaded: Loaded) -> None:
        """Cut the log back to a checkpoint, and keep its segment files instead of writing them again."""
        self.log.truncate_after(loaded.env_steps)
        self.recent_returns.extend(loaded.tree["recent_returns"])
        self._unlogged = Unlogged(**loaded.tree.get("unlogged", {}))
        self.checkpoints.continue_from(loaded)
        before, now = loaded.tree["ranks"], collectives.world_size()
        self._has_ranks = max(before, now) > 1 or _had_ranks(self.folder)
        if before != now:
            was = "was" if before == 1 else "were"
            logger.info(f"The run continues on {counted(now, 'rank')}; there {was} {before}.")

    def begin(self, state: Recordable) -> None:
        """Save before the first iteration, so that there is always something to resume."""
        self._recorded_at, self._recorded_env_steps = time.perf_counter(), state.env_steps
        self._saved_iterations = state.iterations
        self.save(state)
        self.timer.take()
        self._began_at, self._began_env_steps = time.monotonic(), state.env_steps
        self.display.begin(state.env_steps, seconds=self.log.seconds)

    def begin_iteration(self, iteration: int, *, iteration_batch: int, env_steps: int) -> bool:
        """Begin the iteration of that number, after `env_steps`. Returns whether its losses will be read.

        They are by a row of the log and by the program's callback, and cost as much as a few gradient steps.
        """
        every = self.config.log_every
        if every is None:
            most = min(ENV_STEPS_PER_ROW, self.total_env_steps // ROWS_OF_A_SHORT_RUN)
            every = 1 if self.on_iteration is not None else max(-(-most // iteration_batch), 1)
        self._row_is_due = iteration % every == 0 or env_steps + iteration_batch >= self.total_env_steps > 0
        return self._row_is_due or self.on_iteration is not None

    def record(
        self, state: Recordable, episodes: Sequence[Episode], metrics: Mapping[str, float | None]
    ) -> None:
        """Evaluate if due, call the program back, write a row if due, and save a checkpoint if due."""
        self.pace.end_iteration()
        ended = in_order(of_all_ranks(episodes))
        self.recent_returns.extend(episode.episode_return for episode in ended)
        self._unlogged.add(ended, metrics, self._training_of(state.env_steps))
        evaluated = self.evaluate(state, self)
        self._unlogged.metrics |= evaluated
        try:
            if self.on_iteration is not None:
                with self.timer("callback"):
                    view = iteration.of_run(state, self._unlogged.row(self.env_id), stop=self.stop.request)
                    self.on_iteration(view)
                self._unlogged.metrics |= view.custom
        except Exception:  # the iteration itself is complete: nothing of it is lost
            self._write_row(state)
            self.save(state)
            raise
        if evaluated or self.on_iteration is not None:
            self._recorded_at = time.perf_counter()  # only training counts towards speed
        if self._row_is_due or evaluated or state.env_steps >= self.total_env_steps > 0:
            self._write_row(state)
        else:
            self.display.update(state.env_steps, {})
        self.save_if_due(state)

    def _write_row(self, state: Recordable) -> None:
        """Write and show a row, with the times since the one before."""
        row = self._unlogged.row(self.env_id)
        self._unlogged = Unlogged()
        row |= {f"time/{name}": seconds for name, seconds in self.timer.take().items()}
        if self._has_ranks:
            row |= {"charts/ranks": collectives.world_size(), "time/collectives": collectives.take_seconds()}
        self.log.write(state.env_steps, {name: value for name, value in row.items() if value is not None})
        self.display.update(state.env_steps, row | {RECENT_RETURN: self.recent_return})
        self._say_if_long()

    def _show_progress(self) -> None:
        """Show how far this iteration is."""
        self.display.update(
            self._recorded_env_steps,
            {},
            self.pace.note,
            ahead=self.pace.samples_ahead,
            at_least=self.pace.left().at_least,
        )
        self._say_if_long()

    def _say_if_long(self) -> None:
        """Say once that the run takes days, and what would be faster on this machine."""
        done = self._recorded_env_steps + self.pace.samples_ahead
        seconds = time.monotonic() - self._began_at
        known = seconds >= MEASURED_SECONDS and done > self._began_env_steps
        if self._length_was_said or not known or self.pace.left().at_least:
            return
        left = seconds / (done - self._began_env_steps) * (self.total_env_steps - done)
        if left >= LONG_RUN_SECONDS:
            self._length_was_said = True
            faster = f" The preset {self.cheaper_preset} is made for it." if self.cheaper_preset else ""
            logger.info(f"On this machine the run takes about {duration_text(left)} more.{faster}")

    def _stopping(self) -> str:
        """The sentence for a person who has just requested a stop."""
        seconds, at_least = self.pace.left()
        if self.pace.must_end:
            return f"Stopping now: this iteration would take {duration_text(seconds)} more."
        when = f", in {'more than' if at_least else 'about'} {duration_text(seconds)}" if seconds >= 1 else ""
        lost = self._recorded_env_steps + self.pace.samples_collected - self.saved_env_steps
        return (
            f"Stopping after this iteration{when}. To stop at once, press Ctrl-C or send the signal again; "
            f"the newest checkpoint is kept, and {counted(max(0, lost), 'env step')} since then are lost."
        )

    @property
    def should_stop(self) -> bool:
        """Whether a stop was requested on any rank. All ranks must call this."""
        number = collectives.largest_over_ranks(self.stop.signal or 0 if self.stop.requested else -1)
        if number >= 0 and not self.stop.requested:
            self.stop.take_over(number)
        return number >= 0

    @property
    def recent_return(self) -> float | None:
        """Mean over the last episodes; None before the first has ended."""
        recent = self.recent_returns
        return sum(recent) / len(recent) if recent else None

    def save_if_due(self, state: Recordable) -> None:
        """Save if enough time or, if configured, enough iterations have passed since the last checkpoint."""
        every = self.config.checkpoint_every_iterations
        waited = time.monotonic() - self._saved_at
        longest = self.config.checkpoint_every_seconds
        if self.saves_long_iterations and self.pace.last_seconds >= LONG_ITERATION_SECONDS:
            longest = min(longest, self.pace.last_seconds)
        by_time = bool(collectives.from_rank_0(waited >= longest))
        if by_time or 0 < every <= state.iterations - self._saved_iterations:
            self.save(state)

    def save(self, state: Recordable) -> None:
        snapshot = state.snapshot()
        if snapshot is None:
            return
        names = "\n".join(self.checkpoints.missing(snapshot.segments)) if self.is_writing else ""
        snapshot = gathered(snapshot, collectives.text_from_rank_0(names).splitlines())
        if self.is_writing:
            self._write(state.env_steps, snapshot)
        self._saved_at, self._saved_iterations = time.monotonic(), state.iterations
        self.saved_env_steps = state.env_steps

    def _write(self, env_steps: int, snapshot: Snapshot) -> None:
        tree: StateTree = {
            "shared": snapshot.shared,
            "local": snapshot.local,
            "num_envs": snapshot.num_envs,
            "recent_returns": list(self.recent_returns),
            "unlogged": self._unlogged.state_dict(),
            "ranks": collectives.world_size(),
        }
        self.checkpoints.save(env_steps, tree, snapshot.segments)

    def _training_of(self, env_steps: int) -> tuple[int, float]:
        """Env steps and seconds of an iteration that has just ended."""
        now = time.perf_counter()
        spent = env_steps - self._recorded_env_steps, now - self._recorded_at
        self._recorded_at, self._recorded_env_steps = now, env_steps
        return spent


@dataclass
class Unlogged:
    """What no row of the log has yet. Checkpoints keep it, so that a resumed run writes the same rows."""

    episodes: int = 0
    returns: float = 0.0
    lengths: int = 0
    """Sums over the episodes that ended."""
    env_steps: int = 0
    seconds: float = 0.0
    metrics: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """The newest value of each."""

    def add(
        self,
        episodes: Sequence[Episode],
        metrics: Mapping[str, float | None],
        training: tuple[int, float],
    ) -> None:
        """Add an iteration: its episodes, its metrics, and its env steps and seconds."""
        for episode in episodes:
            self.returns += episode.episode_return
            self.lengths += episode.length
        self.episodes += len(episodes)
        self.env_steps += training[0]
        self.seconds += training[1]
        self.metrics |= metrics

    def state_dict(self) -> dict[str, Any]:
        finite = {
            name: value for name, value in self.metrics.items() if value is not None and math.isfinite(value)
        }
        return vars(self) | {"metrics": finite}

    def row(self, env_id: str) -> dict[str, float | None]:
        """The metrics, with those of the speed and of the episodes."""
        row = self.metrics | {"charts/SPS": self.env_steps / self.seconds}
        if not self.episodes:
            return row
        mean_return = self.returns / self.episodes
        return row | {
            "charts/episodes": self.episodes,
            "charts/episodic_return": mean_return,
            "charts/normalized_return": on_published_scale(env_id, mean_return),
            "charts/episodic_length": self.lengths / self.episodes,
        }


def _had_ranks(folder: Path) -> bool:
    """Whether any part of the run had several ranks: the newest checkpoint knows its own only."""
    return any("charts/ranks" in row for row in log.read(folder))


def of_all_ranks(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes of all ranks, rank by rank."""
    if collectives.world_size() == 1:
        return list(episodes)
    own = torch.from_numpy(to_table(episodes))
    return from_table(collectives.rows_of_all_ranks(own).numpy())


def in_order(episodes: list[Episode]) -> list[Episode]:
    """Episodes of several ranks in the order in which one process would have seen them end."""
    return sorted(episodes, key=lambda episode: episode.step)
