"""The names that other libraries have for our settings and flags, to answer those that do not exist."""

from collections.abc import Collection, Iterable

NAMES_ELSEWHERE = {
    "num-envs": "n-envs nenvs envs num-env num-workers batch-size train-batch-size",
    "num-steps": "n-steps nsteps rollout-length rollout-fragment-length unroll-length horizon batch-size "
    "train-batch-size",
    "update.minibatches-per-epoch": "num-minibatches n-minibatches nminibatches num-mini-batches "
    "minibatch-size mini-batch-size batch-size train-batch-size",
    "update.epochs": "epochs n-epochs nepochs num-epochs ppo-epochs update-epochs num-learning-epochs "
    "num-sgd-iter",
    "update.target-kl": "target-kl desired-kl",
    "total-env-steps": "total-timesteps timesteps num-timesteps n-timesteps total-steps max-steps "
    "num-env-steps steps",
    "env-steps": "total-env-steps total-timesteps timesteps num-timesteps n-timesteps total-steps",
    "optimizer.learning-rate": "lr learning-rate step-size",
    "optimizer.anneal": "anneal-lr lr-schedule",
    "optimizer.eps": "adam-eps",
    "optimizer.max-grad-norm": "max-grad-norm grad-clip clip-grad-norm",
    "objective.discount": "gamma discount discount-factor",
    "objective.gae-lambda": "gae-lambda lambda lam",
    "objective.q-lambda": "q-lambda gae-lambda lambda lam",
    "objective.clip": "clip clip-range cliprange clip-coef clip-ratio clip-param clip-eps",
    "objective.value-clip": "clip-range-vf clip-vloss",
    "objective.entropy-coefficient": "ent-coef ent-coeff entropy-coef entropy-coeff entropy-cost",
    "objective.value-coefficient": "vf-coef vf-coeff vf-loss-coeff value-coef value-loss-coef",
    "objective.advantage-normalization": "norm-adv normalize-advantage normalize-advantages",
    "normalize.observations": "norm-obs normalize-obs",
    "normalize.rewards": "norm-reward norm-rewards normalize-reward",
    "exploration.start": "start-e",
    "exploration.end": "end-e",
    "exploration.fraction": "exploration-fraction",
    "env": "env-id env-name gym-id task",
    "preset": "algo algorithm",
    "network.hidden-sizes": "net-arch hidden-size hidden-sizes hidden-dim",
    "evaluation.every-env-steps": "eval-freq eval-every eval-interval",
    "evaluation.num-envs": "episodes num-episodes eval-episodes n-eval-episodes",
    "evaluation.greedy": "greedy deterministic",
    "record.checkpoint-every-seconds": "save-freq checkpoint-freq",
    "record.wandb": "track wandb",
    "device": "cuda gpu",
    "run-dir": "log-dir logdir output-dir save-dir out",
    "onnx": "out",
    "hub": "out",
    "name": "exp-name experiment-name run-name",
}
"""Ours, as flags without dashes, and what other libraries call them. A name may stand for several of ours."""


def meant(names: Iterable[str], known: Collection[str]) -> list[str]:
    """The names among `known` that `names` stand for elsewhere. All are without leading dashes."""
    unknown = {name.replace("_", "-").lower() for name in names}
    return [
        ours for ours, theirs in NAMES_ELSEWHERE.items() if ours in known and unknown & set(theirs.split())
    ]
