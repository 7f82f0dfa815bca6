"""The settings that a plan depends on, flat and named as the flags of the command line."""

from typing import Any

from anybatch.config import AnyConfig
from anybatch.dial import controllers

Settings = dict[str, Any]


def settings_of(config: AnyConfig) -> Settings:
    """The settings that decide a config's plan, with `algorithm` and the facts of its controller."""
    update, optimizer, tuned_at = config.update, config.optimizer, config.tuned_batch()
    return {
        "algorithm": config.algorithm,
        "num-envs": config.num_envs,
        "num-steps": config.num_steps,
        "total-env-steps": config.total_env_steps,
        "rescale": config.rescale,
        "minibatch": config.minibatch,
        "update.minibatches-per-epoch": update.minibatches_per_epoch,
        "update.epochs": update.epochs,
        "update.target-kl": update.target_kl,
        "optimizer.name": optimizer.name,
        "optimizer.learning-rate": optimizer.learning_rate,
        "optimizer.beta1": optimizer.beta1,
        "optimizer.beta2": optimizer.beta2,
        "optimizer.max-grad-norm": optimizer.max_grad_norm,
        "optimizer.anneal-to": optimizer.anneal_to,
        "optimizer.anneal-until": optimizer.anneal_until,
        "tuned-at.num-envs": tuned_at.num_envs,
        "tuned-at.num-steps": tuned_at.num_steps,
        "tuned-at.minibatches-per-epoch": tuned_at.minibatches_per_epoch,
        "tuned-at.epochs": tuned_at.epochs,
        **config.plan_settings,
        **_of_controller(config),
    }


def _of_controller(config: AnyConfig) -> Settings:
    """The rollout lengths of a controller; `start` is that of the first iteration."""
    kind = {"controller.kind": config.controller.kind}
    if config.controller.kind == "fixed":
        return kind
    complete = config.complete_controller
    shortest, longest = config.step_range
    return kind | {
        "controller.compensate": complete.compensate,
        "controller.epochs": complete.epochs,
        "controller.shortest": shortest,
        "controller.longest": longest,
        "controller.start": controllers.in_force(complete, controllers.start(complete)).num_steps,
    }
