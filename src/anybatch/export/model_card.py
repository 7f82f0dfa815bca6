"""The model card of a policy: what was trained, its evaluation and protocol, and how to use it."""

import json
import shlex
from dataclasses import dataclass

import numpy as np

from anybatch.acting.evaluation import Evaluation
from anybatch.config import AnyConfig
from anybatch.dial import Plan
from anybatch.runs import plan_text
from anybatch.runs.best import BEST
from anybatch.text import counted

UNNAMED = "USER/NAME"
"""Placeholder in the commands of a card whose repository is not known yet."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """The content of a model card."""

    config: AnyConfig
    plan: Plan
    evaluation: Evaluation
    evaluation_seed: int
    """Seed of the evaluation's episodes and actions; that of the training is in `config`."""
    other_settings: str
    """Environment settings in which the evaluation differs from the training; empty if none."""
    scales_actions: bool = False
    """Whether actions in [-1, 1] are mapped to the environment's bounds."""
    env_steps: int
    """Env steps of the policy."""
    checkpoint: str
    """How the checkpoint was chosen: newest, best or its env steps."""
    repository: str | None
    video: str | None
    """Name of the video in the folder."""
    onnx: str | None
    """Name of the ONNX file in the folder."""
    versions: dict[str, str]
    naming: tuple[str, ...] = ()
    """Flags for an environment or a network that the folder alone may not name."""

    @property
    def mean_and_deviation(self) -> tuple[float, float]:
        """Mean and standard deviation of the episodes' returns."""
        returns = [episode.episode_return for episode in self.evaluation.episodes]
        return float(np.mean(returns)), float(np.std(returns))

    def text(self) -> str:
        versions = ", ".join(" ".join(pair) for pair in self.versions.items())
        parts = [self._front_matter(), f"# {self.config.title} on {self.config.env}", self._summary()]
        if self.video is not None:
            parts.append(f"[Video of the agent]({self.video})")
        return "\n\n".join([*parts, self._plan(), self._use(), f"Trained with {versions}."]) + "\n"

    def _front_matter(self) -> str:
        """The metadata for the Hub. JSON strings are valid YAML strings."""
        mean, deviation = self.mean_and_deviation
        env, method = json.dumps(self.config.env), json.dumps(self.config.title)
        score = json.dumps(f"{mean:.2f} +/- {deviation:.2f}")
        return f"""---
library_name: anybatch
pipeline_tag: reinforcement-learning
tags:
- reinforcement-learning
- deep-reinforcement-learning
- anybatch
- {json.dumps(self.config.algorithm)}
- {env}
model-index:
- name: {method}
  results:
  - task:
      type: reinforcement-learning
      name: reinforcement-learning
    dataset:
      name: {env}
      type: {env}
    metrics:
    - type: mean_reward
      name: mean_reward
      value: {score}
      verified: false
---"""

    def _summary(self) -> str:
        mean, deviation = self.mean_and_deviation
        evaluation = self.evaluation
        actions = "greedy" if evaluation.greedy else "sampled"
        protocol = f", protocol {evaluation.protocol}" if evaluation.protocol else ""
        cap = f", at most {evaluation.cap:,} decisions each" if evaluation.cap else ""
        other = (
            " The environment was evaluated with other settings than it was trained with: "
            f"{self.other_settings}."
            if self.other_settings
            else ""
        )
        scaled = (
            " Actions are mapped from [-1, 1] to the environment's bounds: `act` and an ONNX graph return "
            "mapped ones."
            if self.scales_actions
            else ""
        )
        episodes = counted(len(evaluation.episodes), "episode")
        return (
            f"Mean return {mean:.6g} ± {deviation:.3g} (standard deviation) over {episodes}, {actions} "
            f"actions{protocol}{cap}, evaluation seed {self.evaluation_seed}, after {self.env_steps:,} env "
            f"steps of training with seed {self.config.seed}.{other}{self._choice()}{scaled}"
        )

    def _choice(self) -> str:
        """How the best policy was chosen, which decides whether its return is too good."""
        if self.checkpoint != BEST:
            return ""
        episodes = (
            "on other episodes than these"
            if self.evaluation_seed != self.config.seed
            else "which had the same episodes: its return is optimistic"
        )
        return f" The policy is the best of the evaluations during training, {episodes}."

    def _plan(self) -> str:
        table = plan_text.render(self.config, self.plan)
        return f"## Batches and the numbers that follow them\n\n```\n{table}\n```"

    def _use(self) -> str:
        name = self.repository or UNNAMED
        folder = name.rpartition("/")[2]
        onnx = (
            f"\n\n`{self.onnx}` is the same policy with its observation normalizer as an ONNX graph."
            if self.onnx
            else ""
        )
        seed = ["--seed", str(self.evaluation_seed)] if self.evaluation_seed != self.config.seed else []
        evaluate = shlex.join(["anybatch", "evaluate", folder, *self.naming, *seed])
        pairs = zip(self.naming[::2], self.naming[1::2], strict=True)
        # --network.factory is network= in Python
        named = [f", {flag.strip('-').partition('.')[0]}={value!r}" for flag, value in pairs]
        return f"""## Use

```
pip install '.[hub]'    # in a checkout of anybatch, which is not on PyPI
anybatch pull {name} --out {folder}
{evaluate}
```

```python
import anybatch

agent = anybatch.load("{folder}"{"".join(named)})
action = agent.act(observation)
```

Weights are safetensors, everything else is JSON: nothing in this repository is executed.{onnx}"""
