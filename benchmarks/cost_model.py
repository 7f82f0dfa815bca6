"""What 1 to 64 nodes would give, computed from costs that were measured on one core.

    python benchmarks/cost_model.py --measure costs.json      # some minutes
    python benchmarks/cost_model.py costs.json --node-speed 1000 --latency-us 50 --gigabits 10

Measured: processor seconds of a collected and of a learned sample, with one thread; the bytes of a gradient;
gradient steps of an iteration; the time of a sum over two ranks on this machine. Assumed: latency and
bandwidth of the network between nodes, how much faster than that core a node is, and that nothing else takes
time, so that the speeds are upper limits.

Nodes are ranks. An iteration takes as long as its busiest rank: samples of a minibatch lie on the ranks at
random, and the largest share of them is simulated by the draws that the library makes. A sum over R ranks
is a ring, 2(R − 1) messages of a latency each, and 2(R − 1)/R times the bytes.
"""

import argparse
import json
import os
import statistics
import tempfile
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import our_loop
import torch
from cases import PQN_XL, PROCGEN
from fresh_process import alone
from machine_facts import machine_facts
from stopwatch import Stopwatch

from anybatch import presets
from anybatch.acting.sources import QueueSource
from anybatch.config import AnyConfig, PPGConfig
from anybatch.distributed import collectives, group
from anybatch.distributed.shard import Shard

NODES = (1, 2, 4, 8, 16, 32, 64)
NOISE_SCALES = (200, 2_000, 20_000)
SMALL = {"num_envs": 16, "num_steps": 16, "threads": 1, "rescale": "none"}
"""The batch that costs are measured at: they hardly depend on it, and the paper's takes an hour."""
EXCHANGES = 60
CASES = {"procgen-ppg-ewma": PROCGEN, "atari-pqn-xl": PQN_XL}
DRAWS = 40


@dataclass(frozen=True)
class Costs:
    """Of one preset, on one core."""

    collect_seconds: float
    """Processor time to collect a sample."""
    learn_seconds: float
    """Processor time to learn from a sample in an iteration, all epochs."""
    auxiliary_seconds: float
    """Processor time of a sample in one auxiliary epoch of PPG."""
    gradient_bytes: int
    """What a rank contributes to a gradient step."""
    learn_steps: int
    """Gradient steps of an iteration, without auxiliary ones."""


class ProcessorStopwatch(Stopwatch):
    """Counts what this process has computed: others may use the machine meanwhile."""

    def tick(self, env_steps: int) -> None:
        self._ticks.append((process_time(), env_steps))


def measured(name: str) -> Costs:
    config = replace(CASES[name], **SMALL)
    one_epoch = 0.0
    if isinstance(config, PPGConfig):
        short = replace(config.phase, policy_iterations=1, auxiliary_epochs=1)
        one_epoch = alone(iteration_costs, replace(config, phase=short))[0]
    whole, steps, size = alone(iteration_costs, config)
    collect = alone(collecting_cost, config)
    auxiliary = max(0.0, one_epoch - whole) if one_epoch else 0.0
    return Costs(collect, whole - collect, auxiliary, size, steps)


def iteration_costs(config: AnyConfig) -> tuple[float, int, int]:
    """Processor seconds a sample, gradient steps an iteration, and bytes of a gradient."""
    state = our_loop.start(config)
    stopwatch = ProcessorStopwatch(0.0, warm_up_iterations=1)
    our_loop.train(config, state, stopwatch)
    flat = state.backend.flat.grads
    iterations = state.learner.env_steps / (config.num_envs * config.num_steps)
    steps = round(state.steps.counts.taken / max(1.0, round(iterations)))
    return stopwatch.elapsed / stopwatch.env_steps, steps, flat.numel() * flat.element_size()


def collecting_cost(config: AnyConfig) -> float:
    """Processor seconds of a sample."""
    state = our_loop.start(config)
    source = state.source
    assert isinstance(source, QueueSource)
    source.collector.collect(state.network, config.num_steps)
    start = process_time()
    source.collector.collect(state.network, config.num_steps)
    return (process_time() - start) / (config.num_envs * config.num_steps)


def exchange_seconds(sizes: list[int]) -> dict[str, dict[str, float]]:
    """Seconds of a sum over two ranks on this machine, by bytes: the median, and the fastest tenth."""
    context = get_context("spawn")
    answers = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        ranks = [context.Process(target=_one_rank, args=(rank, meeting, sizes, answers)) for rank in range(2)]
        for process in ranks:
            process.start()
        found = answers.get()
        for process in ranks:
            process.join()
    return found


def _one_rank(rank: int, meeting: str, sizes: list[int], answers: Any) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": group.LOOPBACK}
    os.environ[group.MEETING_FILE] = meeting
    found: dict[str, dict[str, float]] = {}
    with group.joined():
        for size in sizes:
            gradient = torch.zeros(size // 4)
            times: list[float] = []
            for _ in range(EXCHANGES):
                start = perf_counter()
                collectives.sum_over_ranks(gradient)
                times.append(perf_counter() - start)
            tenth = statistics.quantiles(times, n=10)[0]
            found[str(size)] = {"median": statistics.median(times), "fastest_tenth": tenth}
    if rank == 0:
        answers.put(found)


@dataclass(frozen=True)
class Network:
    """Between nodes; assumed."""

    latency_seconds: float
    bytes_per_second: float

    def sum_seconds(self, ranks: int, size: int) -> float:
        """Of a ring."""
        messages = 2 * (ranks - 1)
        return messages * self.latency_seconds + messages / ranks * size / self.bytes_per_second


@dataclass(frozen=True)
class Work:
    """An iteration of a preset, counted."""

    num_envs: int
    num_steps: int
    minibatches: int
    sequences: bool
    """Whether minibatches are whole rollouts of some envs."""
    auxiliary_epochs: int = 0
    auxiliary_minibatch: int = 0
    iterations_of_a_phase: int = 1

    @classmethod
    def of(cls, config: AnyConfig) -> "Work":
        envs, steps, update = config.num_envs, config.num_steps, config.update
        sequences = getattr(update, "minibatch_of", "samples") == "sequences"
        work = cls(envs, steps, update.minibatches_per_epoch, sequences)
        if not isinstance(config, PPGConfig):
            return work
        phase = config.phase
        return replace(
            work,
            auxiliary_epochs=phase.auxiliary_epochs,
            auxiliary_minibatch=phase.auxiliary_minibatch or 0,
            iterations_of_a_phase=phase.policy_iterations,
        )

    @property
    def batch(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def minibatch(self) -> float:
        return self.batch / self.minibatches

    def times(self, factor: int) -> "Work":
        """With the envs of so many times the nodes, and minibatches that grow with them."""
        return replace(
            self,
            num_envs=self.num_envs * factor,
            auxiliary_minibatch=self.auxiliary_minibatch * factor,
        )

    def largest_share(self, ranks: int, *, auxiliary: bool = False) -> float:
        """The mean over draws of the share of a minibatch that the busiest rank has."""
        if ranks == 1:
            return 1.0
        owner = np.concatenate([[part] * shard.count for part, shard in enumerate(self._shards(ranks))])
        if auxiliary:
            owners = np.tile(owner, self.iterations_of_a_phase)  # a sequence of each env and iteration
            size = max(1, self.auxiliary_minibatch // self.num_steps)
        else:
            owners = owner if self.sequences else np.tile(owner, self.num_steps)
            size = max(1, len(owners) // self.minibatches)
        rng = np.random.default_rng(1)
        draws = (rng.permutation(owners)[:size] for _ in range(DRAWS))
        return float(np.mean([np.bincount(draw, minlength=ranks).max() / size for draw in draws]))

    def _shards(self, ranks: int) -> list[Shard]:
        return Shard.whole(self.num_envs).split(ranks)


def iteration_seconds(costs: Costs, work: Work, ranks: int, network: Network, node_speed: float) -> float:
    """Of one iteration, and its part of the auxiliary phase."""
    collected = -(-work.num_envs // ranks) * work.num_steps * costs.collect_seconds
    learned = work.batch * costs.learn_seconds * work.largest_share(ranks)
    exchanges = costs.learn_steps
    if work.auxiliary_epochs:
        share = work.largest_share(ranks, auxiliary=True)
        learned += work.auxiliary_epochs * work.batch * costs.auxiliary_seconds * share
        exchanges += work.auxiliary_epochs * work.batch / work.auxiliary_minibatch
    return (collected + learned) / node_speed + exchanges * network.sum_seconds(ranks, costs.gradient_bytes)


def efficiency(minibatch: float, base: float, noise_scale: float) -> float:
    """Env steps that `base` needs for a result ÷ those that `minibatch` needs.

    Samples needed are proportional to 1 + minibatch ÷ noise scale (arXiv:1812.06162).
    """
    return (1 + base / noise_scale) / (1 + minibatch / noise_scale)


def table(name: str, costs: Costs, network: Network, node_speed: float) -> str:
    work = Work.of(presets.load(name).config)
    alone_seconds = iteration_seconds(costs, work, 1, network, node_speed)
    scales = " | ".join(f"… with a noise scale of {scale:,}" for scale in NOISE_SCALES)
    lines = [
        f"| nodes | env steps/s, same batch | speed-up | env steps/s, batch × nodes | speed-up | {scales} |",
        "|---" * (5 + len(NOISE_SCALES)) + "|",
    ]
    for nodes in NODES:
        grown = work.times(nodes)
        grown_seconds = iteration_seconds(costs, grown, nodes, network, node_speed)
        faster = alone_seconds * nodes / grown_seconds
        cells = [str(nodes)]
        if nodes <= work.num_envs:
            seconds = iteration_seconds(costs, work, nodes, network, node_speed)
            cells += [f"{work.batch / seconds:,.0f}", f"{alone_seconds / seconds:.1f}"]
        cells += [f"{grown.batch / grown_seconds:,.0f}", f"{faster:.1f}"]
        cells += [
            f"{faster * efficiency(grown.minibatch, work.minibatch, scale):.1f}" for scale in NOISE_SCALES
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def measure(path: Path) -> None:
    costs = {name: measured(name) for name in CASES}
    sizes = [4, *sorted(cost.gradient_bytes for cost in costs.values())]
    found = machine_facts() | {
        "costs": {name: asdict(cost) for name, cost in costs.items()},
        "exchange_seconds_of_two_ranks": exchange_seconds(sizes),
        "load_at_end": os.getloadavg()[0],
    }
    path.write_text(json.dumps(found, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("costs", type=Path, help="JSON file with the measured costs")
    parser.add_argument("--measure", action="store_true", help="measure them and write the file first")
    parser.add_argument("--node-speed", type=float, default=1.0, help="of a node, in cores as measured")
    parser.add_argument("--latency-us", type=float, default=50.0, help="of a message between nodes")
    parser.add_argument("--gigabits", type=float, default=10.0, help="a second, between nodes")
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.costs)
    found = json.loads(chosen.costs.read_text())
    network = Network(chosen.latency_us * 1e-6, chosen.gigabits * 1e9 / 8)
    for name, numbers in found["costs"].items():
        print(f"\n{name}\n\n{table(name, Costs(**numbers), network, chosen.node_speed)}")


if __name__ == "__main__":
    main()
