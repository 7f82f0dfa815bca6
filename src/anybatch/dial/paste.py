"""A plan for another trainer as text to paste, in the trainer's own form."""

import math
import shlex
from typing import Any

from anybatch.dial.other_plans import SCHEDULED, OtherPlan
from anybatch.dial.other_trainers import CLEANRL, PUREJAXRL, RSL_RL, SB3, Settings, words

ZOO_ONLY = ("policy", "n_timesteps", "normalize", "env_wrapper", "vec_env_wrapper", "frame_stack", "callback")
"""Settings of the RL Zoo in addition to those of SB3's PPO."""
RSL_RL_ALGORITHM = words(
    "num_learning_epochs num_mini_batches learning_rate schedule desired_kl clip_param gamma lam "
    "normalize_advantage_per_mini_batch value_loss_coef entropy_coef max_grad_norm use_clipped_value_loss "
    "optimizer rnd_cfg symmetry_cfg"
)
RLLIB_RUNNERS = ("num_env_runners", "num_envs_per_env_runner", "rollout_fragment_length", "batch_mode")
RLLIB_LEARNERS = ("num_learners", "num_gpus_per_learner")
RLLIB_ELSEWHERE = ("env", "env_config", "framework", "num_cpus_per_env_runner", "seed", "model", "optimizer")
DERIVED = ("batch_size", "minibatch_size", "num_iterations", "MINIBATCH_SIZE", "NUM_UPDATES")
"""Numbers that CleanRL and PureJaxRL compute from the others."""


def paste(plan: OtherPlan) -> str:
    """The settings of this run, ready to paste."""
    forms = {SB3.name: sb3, CLEANRL.name: cleanrl, RSL_RL.name: rsl_rl, PUREJAXRL.name: purejaxrl}
    return forms.get(plan.trainer.name, rllib)(plan.settings)


def sb3(settings: Settings) -> str:
    if isinstance(settings["learning_rate"], str) or any(key in settings for key in ZOO_ONLY):
        return yaml_lines(settings)  # the RL Zoo's form
    model = {
        key: value for key, value in settings.items() if key not in ("n_envs", "env_kwargs", "monitor_kwargs")
    }
    return (
        f"env = make_vec_env(ENV_ID, n_envs={settings['n_envs']})\n"
        f"model = PPO(POLICY, env, {arguments(model)})"
    )


def cleanrl(settings: Settings) -> str:
    flags: list[str] = []
    for key, value in settings.items():
        flag = key.replace("_", "-")
        if key in DERIVED or value is None:
            continue
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", shlex.quote(number(value))]
    return " ".join(flags)


def rsl_rl(settings: Settings) -> str:
    runner = {
        key: value for key, value in settings.items() if key not in RSL_RL_ALGORITHM and key != "num_envs"
    }
    algorithm = {key: value for key, value in settings.items() if key in RSL_RL_ALGORITHM}
    indented = "".join(f"\n  {line}" for line in yaml_lines(algorithm).splitlines())
    return (
        f"# num_envs of the environment: {settings['num_envs']}\n{yaml_lines(runner)}\nalgorithm:{indented}"
    )


def purejaxrl(settings: Settings) -> str:
    entries = (f"    {key!r}: {literal(value)}," for key, value in settings.items() if key not in DERIVED)
    return "\n".join(["config = {", *entries, "}"]).replace("'", '"')


def rllib(settings: Settings) -> str:
    groups: dict[str, Settings] = {"env_runners": {}, "learners": {}, "training": {}}
    for key, value in settings.items():
        if key in RLLIB_RUNNERS:
            groups["env_runners"][key] = value
        elif key in RLLIB_LEARNERS:
            groups["learners"][key] = value
        elif key not in RLLIB_ELSEWHERE:
            groups["training"][key] = value
    return "\n".join(f"config.{name}({arguments(group)})" for name, group in groups.items() if group)


def arguments(settings: Settings) -> str:
    return ", ".join(f"{key}={literal(value)}" for key, value in settings.items())


def literal(value: Any) -> str:
    """A value in Python, where inf is only a name."""
    return f"float({str(value)!r})" if is_infinite(value) else repr(value)


def is_infinite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def yaml_lines(settings: Settings) -> str:
    return "\n".join(f"{key}: {yaml_value(value)}" for key, value in settings.items())


def yaml_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str) and (value.startswith(SCHEDULED) or value.replace("_", "").isalnum()):
        return value
    if is_infinite(value):
        return str(value).replace("inf", ".inf").replace("nan", ".nan")
    return number(value) if isinstance(value, int | float) else repr(value)


def number(value: Any) -> str:
    """A number in YAML. YAML 1.1 reads 5e-05 as a string, so it is written as 5.0e-05."""
    text = str(value)
    mantissa, e, power = text.partition("e")
    is_float = isinstance(value, float) and e and "." not in mantissa
    return f"{mantissa}.0e{power}" if is_float else text
