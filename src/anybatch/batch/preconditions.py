"""Warnings, before a run, about settings for which the rules may not hold."""

import math

from anybatch.batch.number_text import number_text
from anybatch.batch.phase import PhasePlan
from anybatch.batch.plan import Plan
from anybatch.batch.rescaling import Hyperparameters
from anybatch.config import PPGConfig, PPOConfig, RunConfig, rescale_rules
from anybatch.equations import rescale


def broken_preconditions(config: RunConfig, plan: Plan) -> list[str]:
    """One sentence for each reason why the rules may not hold in this run, as far as known beforehand."""
    epochs, tuned_steps = config.update.epochs, plan.tuned_at.num_steps
    anneal_until, anneals_to_0 = config.optimizer.anneal_until, config.optimizer.anneal_to == 0
    rescales = bool(rescale_rules(config.rescale)) and not plan.ratios.are_one
    reasons = [
        (
            rescales and epochs > 1,
            f"The rule assumes one policy epoch; update.epochs = {epochs} makes it approximate.",
        ),
        (
            config.num_steps != tuned_steps,
            f"num-steps = {config.num_steps} instead of the tuned {tuned_steps} also changes how far "
            "returns look before they bootstrap; changing num-envs does not.",
        ),
        (
            anneal_until is not None and anneals_to_0 and anneal_until < config.total_env_steps,
            f"The learning rate reaches 0 at optimizer.anneal-until = {anneal_until}, before "
            f"total-env-steps = {config.total_env_steps}.",
        ),
    ]
    if isinstance(config, PPOConfig):
        reasons += _broken_for_policies(config, plan.hyperparameters, rescales=rescales)
    if isinstance(config, PPGConfig) and plan.phase is not None:
        reasons.append(_broken_for_phases(config, plan.ratios.iteration_batch, plan.phase))
    return [sentence for broken, sentence in reasons if broken]


def _broken_for_policies(
    config: PPOConfig, run: Hyperparameters, *, rescales: bool
) -> list[tuple[bool, str]]:
    normalization = config.objective.advantage_normalization
    center = rescale.center_of_mass(run.proximal_decay)
    copy_age = rescale.mean_copy_age(run.proximal_copy_every)
    one_sample = config.num_envs * config.num_steps == 1 and run.advantage_decay == 0
    return [
        (
            rescales and normalization == "minibatch",
            "objective.advantage-normalization = minibatch depends on the minibatch in a way that no rule "
            "corrects; iteration does not.",
        ),
        (
            rescales and config.update.target_kl is not None,
            f"update.target-kl = {config.update.target_kl} ends iterations early, by an amount that depends "
            "on the batch.",
        ),
        (
            config.proximal.policy == "ewma" and round(center, 9) < 1,
            f"The proximal EWMA's center of mass is {center:.3g} gradient steps: below 1 it hardly holds the "
            "update back.",
        ),
        (
            config.proximal.policy == "periodic" and copy_age < 1,
            f"The proximal copy is {copy_age:.3g} gradient steps old on average: below 1 it hardly holds the "
            "update back.",
        ),
        (
            one_sample and normalization == "iteration",
            "An iteration of one sample has a normalized advantage of 0: objective.advantage-decay above 0 "
            "compares it with earlier ones.",
        ),
    ]


def _broken_for_phases(config: PPGConfig, ratio: float, run: PhasePlan) -> tuple[bool, str]:
    iterations = rescale.rescaled_phase_iterations(config.phase.policy_iterations, ratio)
    return (
        "phase-length" in rescale_rules(config.rescale)
        and not math.isclose(iterations, run.policy_iterations),
        f"A phase would be {number_text(iterations, 4)} iterations; {run.policy_iterations:,} is the nearest "
        "possible.",
    )
