"""Collecting an iteration batch: step the environments and store observations, decisions and results."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anybatch.acting.normalizers import ObservationNormalizer
from anybatch.acting.rollout import START_OF_RUN, Origin, Rollout
from anybatch.backends import Acting, Actor
from anybatch.backends.acting import Buffers
from anybatch.distributed.shard import Shard
from anybatch.envs.episodes import EpisodeTracker
from anybatch.envs.protocol import EnvSpec, EnvStep, RestorableEnv, VectorEnv
from anybatch.errors import EnvError
from anybatch.networks.distributions import draw_noise, kept_log_std
from anybatch.runs import pace
from anybatch.storage.state_fit import validate_fit


class Collector:
    """Steps one vector env with a policy, and keeps the state of the envs between rollouts."""

    def __init__(
        self,
        env: VectorEnv,
        *,
        shard: Shard,
        generator: torch.Generator,
        normalizer: ObservationNormalizer | None,
        time_limit_is_terminal: bool,
        chunk: int,
        device: torch.device,
        acting: Acting,
        dtype: torch.dtype = torch.float32,
    ):
        """`env` holds the environments of `shard`; `generator` draws the noise of the whole run's."""
        self.env = env
        self.shard = shard
        self.generator = generator
        self.normalizer = normalizer
        self.time_limit_is_terminal = time_limit_is_terminal
        self.chunk = chunk
        self.device = device
        self.dtype = dtype
        self.acting = acting
        self.episodes = EpisodeTracker(env.spec.num_envs)
        self._env_numbers = np.arange(shard.first, shard.first + shard.count)
        self.obs = self._first_seen()

    def _first_seen(self) -> np.ndarray:
        """The observations of fresh episodes. Per-iteration statistics count only those returned by steps."""
        obs = self.env.reset()
        if self.normalizer is not None and not self.normalizer.per_step:
            return self.normalizer.normalize(obs)
        return self._seen(obs, decides=None)

    def collect(self, network: Actor, num_steps: int, origin: Origin = START_OF_RUN) -> Rollout:
        """Step every env `num_steps` times."""
        buffers = Buffers.allocate(self.env.spec, num_steps, self.dtype)
        self._act(network, buffers)
        validate_finite(buffers, self.shard.first)
        if self.time_limit_is_terminal:
            buffers.terminated |= buffers.truncated
        value, next_value = self._values(network, buffers)
        if self.normalizer is not None:
            self.normalizer.end_iteration()
        policy = network.distribution(buffers.policy_params.flatten(0, 1).to(self.device))
        with torch.no_grad():
            logp = policy.log_prob(buffers.action.flatten(0, 1).to(self.device)).cpu()
        return rollout_of(
            buffers,
            log_std=kept_log_std(policy.log_std),
            behavior_logp=logp.view(buffers.reward.shape),
            value=value,
            next_value=next_value,
            episodes=self.episodes.take(),
            origin=origin,
        )

    def _act(self, network: Actor, buffers: Buffers) -> None:
        continuous = self.env.spec.is_continuous
        # Drawn for all envs of the run, so that an env's noise does not depend on the process that steps it.
        steps, _, width = buffers.policy_params.shape
        noise = draw_noise(
            (steps, self.shard.total, width), self.generator, continuous=continuous, dtype=self.dtype
        )[:, self.shard.envs]
        validate_shape(self.obs, self.env.spec)
        buffers.obs.numpy()[0] = self.obs
        # A normalizer has to look at the observations between two steps.
        ended = (
            self.acting.whole_rollout(network, self.env, buffers, noise) if self.normalizer is None else None
        )
        if ended is None:
            self._step_by_step(self.acting.decisions(network, buffers, noise), buffers)
        else:
            self.obs = buffers.obs[-1].numpy().copy()
            reward, _, truncated, valid = buffers.views
            self.episodes.update_all(reward, valid, ended, truncated)

    def _step_by_step(self, decide: Callable[[int], None], buffers: Buffers) -> None:
        # Everything per step is in this loop; at one env its cost per call is what decides the speed.
        obs_views, engine_actions = buffers.obs.numpy(), engine_view(buffers.action)
        report, num_steps = pace.current().collected, len(buffers.reward)
        with torch.inference_mode():
            for t in range(num_steps):
                decide(t)
                step = self.env.step(engine_actions[t])
                self._keep(buffers, t, step)
                obs_views[t + 1] = self.obs
                report(t + 1, num_steps)

    def _keep(self, buffers: Buffers, t: int, step: EnvStep) -> None:
        reward, terminated, truncated, valid = buffers.views
        reward[t] = step.reward
        terminated[t] = step.terminated
        truncated[t] = step.truncated
        valid[t] = step.valid
        self.episodes.update(step)
        ended = step.terminated | step.truncated
        if step.final_obs is None:
            # Next-step reset: the next row shows the final observation, and its action is ignored.
            self.obs = self._seen(step.obs, decides=~ended)
        else:
            self.obs = self._seen(step.obs, decides=None)
            envs = ended.nonzero()[0]
            if len(envs):
                final = step.final_obs[envs]
                seen = final if self.normalizer is None else self.normalizer.normalize(final)
                buffers.final_obs.append((np.full(len(envs), t), envs, seen))

    def _seen(self, obs: np.ndarray, decides: np.ndarray | None) -> np.ndarray:
        """`obs` as the network sees it; statistics count only observations that decisions are based on."""
        if self.normalizer is None:
            return obs
        if decides is None or decides.all():
            self.normalizer.update(obs, self._env_numbers)
        elif decides.any():
            self.normalizer.update(obs[decides], self._env_numbers[decides])
        return self.normalizer.normalize(obs)

    def _values(self, network: Actor, buffers: Buffers) -> tuple[Tensor, Tensor]:
        """Values of the observations before and after each step. Both [T, N]."""
        if network.shares_encoder:
            last = self.acting.values(network, buffers.obs[-1], self.chunk)
            value = torch.cat([buffers.acting_value, last[None]])
        else:
            value = self.acting.values(network, buffers.obs.flatten(0, 1), self.chunk)
            value = value.view(buffers.obs.shape[:2])
        next_value = value[1:].clone()
        if buffers.final_obs:
            final = torch.from_numpy(np.concatenate([obs for _, _, obs in buffers.final_obs]))
            final_value = self.acting.values(network, final.to(buffers.obs.dtype), self.chunk)
            rows = np.concatenate([rows for rows, _, _ in buffers.final_obs])
            next_value[rows, np.concatenate([envs for _, envs, _ in buffers.final_obs])] = final_value
        return value[:-1], next_value

    def example(self, num_steps: int) -> Rollout:
        """A rollout of this length without data: its parts, shapes and types."""
        return example_rollout(self.env.spec, num_steps, self.dtype)

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to continue; engines that cannot be restored will start fresh episodes."""
        state: dict[str, Any] = {
            "generator": self.generator.get_state(),
            "num_envs": self.shard.total,
        }
        if isinstance(self.env, RestorableEnv):
            parts = {"env": self.env.state_dict(), "obs": self.obs, "episodes": self.episodes.state_dict()}
            # Ranks and actors divide a state by env, which some engines cannot.
            if self.shard.is_whole or has_rows(parts, self.shard.count):
                state |= parts
        return state

    def drop_episodes_of_another_engine(self, saved: dict) -> None:
        """Remove from a saved state the episodes in progress that this run's engine cannot continue."""
        drop_episodes_unlike(self.state_dict().get("env", {}), saved)

    def load_state_dict(self, state: dict) -> bool:
        """Continue from `state`. Returns whether the episodes in progress were restored."""
        self.generator.set_state(state["generator"])
        same_envs = state.get("env") is not None and state["num_envs"] == self.shard.total
        if not isinstance(self.env, RestorableEnv) or not same_envs:
            # The first observations were normalized before the statistics were restored.
            self.obs = self._first_seen()
            return False
        validate_fit(state, self.state_dict(), "the collector", finite=False)
        self.env.load_state_dict(state["env"])
        self.obs = state["obs"]
        self.episodes.load_state_dict(state["episodes"])
        return True


def has_rows(tree: Any, count: int) -> bool:
    """Whether every array in a state has one entry for each of `count` envs."""
    if isinstance(tree, Mapping):
        return all(has_rows(part, count) for part in tree.values())
    return not isinstance(tree, np.ndarray) or (tree.ndim > 0 and len(tree) == count)


def example_rollout(spec: EnvSpec, num_steps: int, dtype: torch.dtype) -> Rollout:
    """A rollout of this length without data: its parts, shapes and types."""
    with torch.device("meta"):
        buffers = Buffers.allocate(spec, num_steps, dtype)
        log_std = torch.empty(spec.action_width, dtype=dtype)
    return rollout_of(
        buffers,
        log_std=log_std if spec.is_continuous else None,
        behavior_logp=buffers.reward,
        value=buffers.reward,
        next_value=buffers.reward,
        episodes=[],
    )


def rollout_of(buffers: Buffers, **rest: Any) -> Rollout:
    """The rollout that was collected in `buffers`, with what is computed after it."""
    return Rollout(
        obs=buffers.obs,
        action=buffers.action,
        reward=buffers.reward,
        terminated=buffers.terminated,
        truncated=buffers.truncated,
        valid=buffers.valid,
        policy_params=buffers.policy_params,
        **rest,
    )


def drop_episodes_unlike(here: dict[str, Any], saved: dict[str, Any]) -> None:
    """Remove episodes in progress from a collector's saved state, unless they match the engine of `here`.

    `here` is the state of this run's envs, empty if they cannot be restored.
    """
    there = saved.get("env", {})
    if not isinstance(there, dict) or there.keys() == here.keys():
        return
    for part in ("env", "obs", "episodes"):
        saved.pop(part, None)
        if here:
            saved[part] = None


def engine_view(actions: Tensor) -> "np.ndarray | RoundedRows":
    """The actions [T, N, …] in the form for engines, row by row: continuous ones in float32."""
    return RoundedRows(actions.numpy()) if actions.dtype == torch.float64 else actions.numpy()


class RoundedRows:
    """Rows of an array, converted to float32 on access."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def __getitem__(self, row: int) -> np.ndarray:
        return self._rows[row].astype(np.float32)


def validate_shape(obs: np.ndarray, spec: EnvSpec) -> None:
    """Refuse observations of another shape than that of the spec, which numpy may repeat to make them fit."""
    expected = (spec.num_envs, *spec.obs_shape)
    if np.shape(obs) != expected:
        raise EnvError(
            f"{spec.env_id} returned observations of shape {np.shape(obs)}, but its spec has {expected} for "
            f"{spec.num_envs} envs"
        )


def validate_finite(buffers: Buffers, first_env: int) -> None:
    """Refuse non-finite rewards and observations, which would spoil every statistic, and name the first.

    `first_env` is the run-wide number of the first env in the buffers.
    """
    named = {"reward": buffers.reward}
    if buffers.obs.is_floating_point():
        named["observation"] = buffers.obs
    for name, tensor in named.items():
        if math.isfinite(tensor.sum()):  # a sum of finite numbers may overflow: only then each is looked at
            continue
        finite = torch.isfinite(tensor)
        if not finite.all():
            row, env, *index = (~finite).nonzero()[0].tolist()
            step = row if name == "reward" else row - 1
            raise EnvError(
                f"environment {first_env + env} returned a non-finite {name}, "
                f"{tensor[row, env, *index].item()}, at step {step} of the iteration"
            )
