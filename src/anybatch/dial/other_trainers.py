"""Other trainers: their names for the settings that depend on the batch, one record each; reading them."""

import ast
import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from anybatch.config.require import DEEPEST_NESTING, MOST_DIGITS
from anybatch.errors import UserError, cause_of

Settings = dict[str, Any]
FILES = (".json", ".yaml", ".yml")
MOST_VALUES = 10_000
"""Most values in a setting."""
SECTIONS = {"algorithm", "training", "env_runners", "learners"}
"""Groups of settings within a trainer's configuration; other tables are values or names of environments."""

LONGEST_SHOWN = 60
"""Letters of a value in an error message."""


def shown(value: Any) -> str:
    """A value in an error message, which a person must be able to read."""
    text = str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A trainer's names for the settings that a plan reads or changes, and its other settings."""

    name: str
    title: str
    num_envs: tuple[str, ...]
    """Keys whose product is the number of environments. A plan changes the last one."""
    epochs: str
    learning_rate: str
    num_steps: str | None = None
    """Key of the steps of each environment between two updates."""
    iteration_batch: str | None = None
    """Key of the samples between two updates, for each learner, if these are set instead of the steps."""
    minibatch: str | None = None
    """Key of the samples behind a gradient step, for each learner."""
    minibatches: str | None = None
    """Key of the gradient steps per epoch, if these are set instead of the samples."""
    num_learners: str | None = None
    """Key of the number of learners, each with its own batch."""
    optimizer: str | None = None
    """Key of the optimizer's name; without a key it is Adam."""
    zero_means_one: bool = False
    """Whether a number of 0 remote runners or learners means one local one."""
    normalizes_minibatches: str | bool = False
    """Whether advantages are normalized within each minibatch: always, never, or the key that decides it."""
    normalizes_iterations: bool = False
    """Whether advantages are otherwise normalized over one iteration."""
    measured: str = ""
    """What was measured with plans for more envs: results/foreign."""
    defaults: Settings
    """Defaults of the trainer. A setting without a default must be given."""
    others: tuple[str, ...]
    """Settings that do not depend on the batch: accepted, and repeated unchanged."""

    @property
    def read(self) -> tuple[str, ...]:
        """The keys that a plan needs."""
        keys = (
            *self.num_envs,
            self.num_steps,
            self.iteration_batch,
            self.minibatch,
            self.minibatches,
            self.epochs,
            self.learning_rate,
        )
        return tuple(key for key in keys if key is not None)

    @property
    def known(self) -> tuple[str, ...]:
        optional = tuple(key for key in (self.num_learners, self.optimizer) if key is not None)
        return (*self.read, *optional, *self.defaults, *self.others)

    def complete(self, given: Settings) -> Settings:
        """The settings with the trainer's defaults, or an error that names what is unknown or missing."""
        for key in given:
            if key not in self.known:
                nearest = ", ".join(difflib.get_close_matches(key, sorted(set(self.known)), n=3, cutoff=0.0))
                raise UserError(f"{self.title} has no setting {key}; the nearest names are {nearest}")
        settings = self.defaults | given
        missing = [key for key in self.read if key not in settings]
        if missing:
            raise UserError(
                f"{', '.join(missing)} must be given, at the batch the numbers were tuned at: "
                f"a plan for {self.title} needs {', '.join(self.read)}"
            )
        return settings


SB3 = Trainer(
    name="sb3",
    title="Stable-Baselines3",
    num_envs=("n_envs",),
    num_steps="n_steps",
    minibatch="batch_size",
    epochs="n_epochs",
    learning_rate="learning_rate",
    normalizes_minibatches="normalize_advantage",
    measured="Measured with Stable-Baselines3 at 8 times the envs, area under the curve at its own batch, "
    "with such a plan and without: 435, 336 and 305 on CartPole-v1 (5 seeds), 689, -177 and -183 on "
    "HalfCheetah-v4 (3 seeds). The plan alone does not keep the curve.",
    defaults={
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "learning_rate": 3e-4,
        "normalize_advantage": True,
        "target_kl": None,
    },
    others=words(
        "gamma gae_lambda clip_range clip_range_vf ent_coef vf_coef max_grad_norm use_sde sde_sample_freq "
        "rollout_buffer_class rollout_buffer_kwargs stats_window_size tensorboard_log policy_kwargs verbose "
        "seed device policy n_timesteps normalize env_wrapper vec_env_wrapper frame_stack callback "
        "monitor_kwargs env_kwargs"
    ),
)

CLEANRL = Trainer(
    name="cleanrl",
    title="CleanRL",
    num_envs=("num_envs",),
    num_steps="num_steps",
    minibatches="num_minibatches",
    epochs="update_epochs",
    learning_rate="learning_rate",
    normalizes_minibatches="norm_adv",
    defaults={"norm_adv": True, "target_kl": None},  # sizes differ from script to script: they must be given
    others=words(
        "exp_name seed torch_deterministic cuda track wandb_project_name wandb_entity capture_video "
        "save_model upload_model hf_entity env_id total_timesteps anneal_lr gamma gae_lambda clip_coef "
        "clip_vloss ent_coef vf_coef max_grad_norm batch_size minibatch_size num_iterations"
    ),
)

RSL_RL = Trainer(
    name="rsl_rl",
    title="RSL-RL",
    num_envs=("num_envs",),
    num_steps="num_steps_per_env",
    minibatches="num_mini_batches",
    epochs="num_learning_epochs",
    learning_rate="learning_rate",
    optimizer="optimizer",
    normalizes_minibatches="normalize_advantage_per_mini_batch",
    normalizes_iterations=True,
    defaults={
        "num_mini_batches": 4,
        "num_learning_epochs": 5,
        "learning_rate": 1e-3,
        "schedule": "adaptive",
        "desired_kl": 0.01,
        "normalize_advantage_per_mini_batch": False,
    },
    others=words(
        "clip_param gamma lam value_loss_coef entropy_coef max_grad_norm use_clipped_value_loss device "
        "rnd_cfg symmetry_cfg class_name seed max_iterations empirical_normalization save_interval "
        "experiment_name run_name logger obs_groups clip_actions resume load_run load_checkpoint "
        "neptune_project wandb_project policy actor critic check_for_nan"
    ),
)

PUREJAXRL = Trainer(
    name="purejaxrl",
    title="PureJaxRL",
    num_envs=("NUM_ENVS",),
    num_steps="NUM_STEPS",
    minibatches="NUM_MINIBATCHES",
    epochs="UPDATE_EPOCHS",
    learning_rate="LR",
    normalizes_minibatches=True,
    defaults={},
    others=words(
        "TOTAL_TIMESTEPS GAMMA GAE_LAMBDA CLIP_EPS ENT_COEF VF_COEF MAX_GRAD_NORM ACTIVATION ENV_NAME "
        "ANNEAL_LR NORMALIZE_ENV DEBUG NUM_UPDATES MINIBATCH_SIZE SEED"
    ),
)

RLLIB = Trainer(
    name="rllib",
    title="RLlib",
    num_envs=("num_env_runners", "num_envs_per_env_runner"),
    iteration_batch="train_batch_size_per_learner",
    minibatch="minibatch_size",
    epochs="num_epochs",
    learning_rate="lr",
    num_learners="num_learners",
    zero_means_one=True,
    normalizes_iterations=True,
    defaults={
        "num_env_runners": 2,
        "num_envs_per_env_runner": 1,
        "train_batch_size_per_learner": 4000,
        "minibatch_size": 128,
        "num_epochs": 30,
        "lr": 5e-5,
        "num_learners": 0,
        "use_kl_loss": True,
    },
    others=words(
        "gamma grad_clip grad_clip_by lambda_ use_gae use_critic kl_coeff kl_target vf_loss_coeff "
        "entropy_coeff clip_param vf_clip_param shuffle_batch_per_epoch rollout_fragment_length batch_mode "
        "env env_config framework num_gpus_per_learner num_cpus_per_env_runner seed model optimizer"
    ),
)

TRAINERS = {trainer.name: trainer for trainer in (SB3, CLEANRL, RSL_RL, PUREJAXRL, RLLIB)}


def trainer_named(name: str) -> Trainer:
    if name not in TRAINERS:
        raise UserError(f"--from {name}: must be one of {', '.join(TRAINERS)}")
    return TRAINERS[name]


def read_settings(trainer: Trainer, given: Sequence[str]) -> Settings:
    """The settings in the given words; later ones override earlier ones. The names are the trainer's."""
    settings: Settings = {}
    for word in given:
        key, equals, value = word.partition("=")
        if Path(key).suffix.lower() in FILES and not equals:
            settings |= read_file(trainer, Path(word))
        elif equals and key:
            settings[key.removeprefix("--").replace("-", "_")] = parsed(value)
        else:
            raise UserError(
                f"{word}: settings of {trainer.title} must be key=value, such as "
                f"{trainer.learning_rate}=3e-4, or a file that ends in {', '.join(FILES)}"
            )
    for key, value in settings.items():
        validate_plain(key, value)
    return settings


def validate_plain(key: str, setting: Any) -> None:
    """Refuse what is not text, numbers, and lists and tables of these, or cannot be printed again.

    `key` is the name of the setting, or of a file with several.
    """
    level = [setting]
    for _ in range(DEEPEST_NESTING):
        for value in level:
            if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
                raise UserError(f"{key}: numbers must have at most {MOST_DIGITS} digits")
            if value is not None and not isinstance(value, str | int | float | list | tuple | dict):
                raise UserError(f"{key} = {shown(value)}: must be a number, a string, a list or a table")
        level = [inner for value in level for inner in inside(value)]
        if len(level) > MOST_VALUES:  # references within YAML can multiply a few lines without limit
            raise UserError(f"{key}: must have at most {MOST_VALUES:,} values")
        if not level:
            return
    raise UserError(f"{key}: it is nested too deeply")


def inside(value: Any) -> list[Any]:
    """The values inside a list or a table, and the keys of the latter."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else []


def parsed(text: str) -> Any:
    """A number, True, None or a list as Python writes them; anything else is a string."""
    try:
        return ast.literal_eval({"true": "True", "false": "False", "null": "None"}.get(text, text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def read_file(trainer: Trainer, path: Path) -> Settings:
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise UserError(f"{path} cannot be read: it is not a regular file")
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix.lower() == ".json" else from_yaml(path, text)
    except RecursionError:
        raise UserError(f"{path} cannot be read: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {cause_of(error)}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a table of settings")
    validate_plain(str(path), content)
    return flattened(trainer, cast("Settings", content), path)


def from_yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise UserError(f"{path} needs the package pyyaml: install it with pip install pyyaml") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from None
    except (LookupError, TypeError, AttributeError) as error:  # of a value that is not what its tag says
        raise ValueError(f"it has a value that is not what its tag says ({error!r})") from None


def flattened(trainer: Trainer, content: Settings, path: Path) -> Settings:
    """One table, from sections of one configuration or from a file with one configuration by name."""
    tables = {str(key): cast("Settings", value) for key, value in content.items() if isinstance(value, dict)}
    named = [key for key in tables if key not in SECTIONS and key not in trainer.known]
    if named and len(tables) == len(content):
        if len(named) > 1:
            raise UserError(f"{path} has several configurations, {', '.join(named[:5])}: it must have one")
        return flattened(trainer, tables[named[0]], path)
    settings: Settings = {}
    for key, value in content.items():
        if key in SECTIONS and isinstance(value, dict):
            settings |= value
        else:
            settings[str(key)] = value
    return settings
