"""What a trainer cannot express at another batch, one sentence each."""

from anybatch.batch.number_text import number_text
from anybatch.foreign.trainers import CLEANRL, PUREJAXRL, RLLIB, RSL_RL, SB3, Settings, Trainer

ADAPTIVE = "where it starts: the schedule adapts it"

MEASURED = {
    SB3.name: "Measured with Stable-Baselines3 on CartPole-v1 at 8 times the envs, 5 seeds: area under the "
    "curve 435 at its own batch, 336 with such a plan, 305 without; whether it helps is undecided."
}
"""The cost of the limits, for trainers that were run: results/foreign."""


def notes(trainer: Trainer, settings: Settings, tuned: int, run: int) -> tuple[str, ...]:
    """Sentences about settings tuned at iteration batches of `tuned` samples and used at `run`."""
    if tuned == run:
        return ()
    sentences = [
        proximal(trainer, tuned, run),
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
