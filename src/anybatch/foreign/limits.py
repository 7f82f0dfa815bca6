"""What a trainer cannot express at another batch, one sentence each."""

from anybatch.batch.number_text import number_text
from anybatch.foreign.trainers import CLEANRL, PUREJAXRL, RLLIB, RSL_RL, SB3, Settings, Trainer

ADAPTIVE = "where it starts: the schedule adapts it"

FEWEST_STEPS = 8
"""Shorter rollouts are not suggested: advantages over fewer steps are little more than the value function."""

MEASURED = {
    SB3.name: "Measured with Stable-Baselines3 at 8 times the envs, area under the curve at its own batch, "
    "with such a plan and without: 435, 336 and 305 on CartPole-v1 (5 seeds), 689, -177 and -183 on "
    "HalfCheetah-v4 (3 seeds). The plan alone does not keep the curve."
}
"""The cost of the limits, for trainers that were run: results/foreign."""


def notes(trainer: Trainer, settings: Settings, tuned: int, run: int) -> tuple[str, ...]:
    """Sentences about settings tuned at iteration batches of `tuned` samples and used at `run`."""
    if tuned == run:
        return ()
    sentences = [
        proximal(trainer, tuned, run),
        shorter_rollouts(trainer, settings, tuned, run),
        epochs(trainer, settings),
        normalization(trainer, settings, tuned, run),
        early_stop(settings),
        adaptation(trainer, settings),
        MEASURED.get(trainer.name, "") if run > tuned else "",
    ]
    return tuple(sentence for sentence in sentences if sentence)


def proximal(trainer: Trainer, tuned: int, run: int) -> str:
    times = number_text(max(run / tuned, tuned / run), 4)
    older = f"{times} times as old" if run > tuned else f"{times} times younger"
    return (
        f"{trainer.title} keeps updates close to the policy that collected the data, which is {older} in env "
        "steps at this batch. No setting corrects that; PPO-EWMA does: anybatch train --proximal.policy ewma."
    )


def shorter_rollouts(trainer: Trainer, settings: Settings, tuned: int, run: int) -> str:
    """How to have more envs and still the tuned batch, which such a trainer does better with."""
    steps = settings[trainer.num_steps] if trainer.num_steps is not None else 0
    if run % tuned or steps % (run // tuned) or steps * tuned // run < FEWEST_STEPS:
        return ""
    return (
        f"{trainer.num_steps} = {steps * tuned // run} keeps the iteration batch at {tuned:,} samples with "
        "these envs: then every other number stays as it was tuned, and only the rollouts are shorter."
    )


def epochs(trainer: Trainer, settings: Settings) -> str:
    count = settings[trainer.epochs]
    return (
        f"The rule assumes one policy epoch; {trainer.epochs} = {count} makes it approximate."
        if count > 1
        else ""
    )


def normalization(trainer: Trainer, settings: Settings, tuned: int, run: int) -> str:
    """A sentence about the normalization of advantages."""
    per_minibatch = {
        SB3.name: "normalize_advantage",
        CLEANRL.name: "norm_adv",
        RSL_RL.name: "normalize_advantage_per_mini_batch",
    }
    key = per_minibatch.get(trainer.name)
    if trainer is PUREJAXRL or (key is not None and settings.get(key)):
        cause = f"{trainer.title} normalizes" if key is None else f"{key} = {settings[key]} normalizes"
        return f"{cause} advantages within each minibatch, which no rule corrects."
    if trainer in (RSL_RL, RLLIB) and run < tuned:
        return (
            "Advantages are normalized over one iteration, which has fewer samples at this batch; "
            f"{trainer.title} has no average over several iterations."
        )
    return ""


def early_stop(settings: Settings) -> str:
    target = settings.get("target_kl")
    if target is None:
        return ""
    return f"target_kl = {target} ends iterations early, by an amount that depends on the batch."


def adapts(settings: Settings) -> bool:
    """Whether RSL-RL changes the learning rate by itself."""
    return settings.get("schedule") == "adaptive" and settings.get("desired_kl") is not None


def adaptation(trainer: Trainer, settings: Settings) -> str:
    if trainer is RSL_RL and adapts(settings):
        return (
            f"schedule = adaptive changes learning_rate at every minibatch to keep the KL divergence near "
            f"desired_kl = {settings['desired_kl']}: the number here is only its initial value."
        )
    if trainer is RLLIB and settings.get("use_kl_loss"):
        return (
            "use_kl_loss = True adapts kl_coeff once per iteration: in env steps, that is less often at a "
            "larger batch and more often at a smaller one."
        )
    return ""
