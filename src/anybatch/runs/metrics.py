"""Every metric that a run can write, and its meaning. Writing any other name is an error, unless it begins
with custom/: those are of the program that trains.

Losses are means over the iteration's samples or gradient steps, never those of the last minibatch. A metric
that could not be measured is absent or null, never 0. The x axis is env steps. A row stands for all
iterations since the row before (record.log-every); its losses are those of the last one.
"""

import difflib
from collections.abc import Iterable

METRICS: dict[str, str] = {
    "charts/episodes": "Episodes that ended in this iteration.",
    "charts/episodic_return": "Mean score, unclipped, of the episodes that ended in this iteration.",
    "charts/recent_return": "Mean score, unclipped, of the last 100 episodes; on the display only.",
    "charts/episodic_length": "Mean number of decisions of the episodes that ended in this iteration.",
    "charts/normalized_return": "Procgen: normalized, Atari: human-normalized charts/episodic_return.",
    "charts/SPS": "Env steps per second of wall time over all ranks in this iteration, without evaluations.",
    "charts/learning_rate": "Learning rate of the iteration's first gradient step.",
    "charts/epsilon": "PQN: share of random actions in this iteration.",
    "charts/ranks": "Learner processes in this iteration, if the run has or had several.",
    "charts/iterations": "Iterations done since the start of the run.",
    "charts/gradient_steps": "Gradient steps taken since the start of the run, over all epochs.",
    "losses/policy_loss": "Negated policy objective with its KL penalty, without the entropy bonus.",
    "losses/value_loss": "Squared error of the value, before its coefficient.",
    "losses/td_loss": "PQN: squared error of the action values, before its coefficient.",
    "losses/q_values": "PQN: mean value of the chosen actions.",
    "losses/entropy": "Entropy of the current policy.",
    "losses/approx_kl": "Estimated KL divergence from the behavior policy to the current one.",
    "losses/clipfrac": "Fraction of samples whose ratio to the proximal policy is outside the clip range.",
    "losses/explained_variance": "1 - Var(target - value) / Var(target), with the values of collection time.",
    "losses/grad_norm": "Norm of the gradient before clipping.",
    "losses/grad_clip_fraction": "Fraction of gradient steps whose gradient was clipped.",
    "losses/skipped_steps": "Gradient steps skipped since the start of the run, for a non-finite gradient.",
    "losses/epochs_done": "Epochs done in this iteration; fewer than configured if target_kl stopped it.",
    "batch/iteration": "Nominal iteration batch: envs × steps, reset steps included.",
    "batch/minibatch": "Nominal minibatch: iteration batch ÷ minibatches per epoch.",
    "batch/minibatch_limit": "Largest minibatch, if it is limited; beyond it there are more minibatches.",
    "batch/num_steps": "Steps of each env in this iteration's rollout.",
    "batch/behavioral_divergence": "Share of states whose best action this iteration changed, when measured.",
    "batch/policy_kl": "KL divergence from the policy before this iteration, when measured.",
    "batch/microbatch": "Samples per forward and backward pass on one device.",
    "batch/valid_fraction": "Fraction of the collected steps that are data, which reset steps are not.",
    "batch/rank_imbalance": "Several ranks: a minibatch's largest share on one rank ÷ the mean share.",
    "noise/trace": "Noise tr(Σ) of the policy's gradient, per sample, if this iteration measured it.",
    "noise/signal": "Signal |G|² of the policy's gradient; where noise hides it, it may be negative.",
    "noise/value_trace": "Noise tr(Σ) of the value's gradient.",
    "noise/value_signal": "Signal |G|² of the value's gradient.",
    "noise/batch_trace": "Noise tr(Σ) by Park's estimator, from microbatches of one batch, for a controller.",
    "noise/batch_signal": "Signal |G|² by Park's estimator.",
    "batch/noise_scale": "Gradient noise scale of the policy, in samples: mean trace ÷ mean signal of the "
    "last 20 measurements. Absent where noise hides the signal.",
    "batch/noise_scale_error": "Standard error of batch/noise_scale.",
    "batch/noise_scale_above": "Where noise hides the signal: the noise scale is probably more than this.",
    "batch/noise_scale_value": "The same as batch/noise_scale for the value.",
    "batch/noise_scale_value_error": "Standard error of batch/noise_scale_value.",
    "batch/noise_scale_value_above": "The same as batch/noise_scale_above for the value.",
    "advantage/mean": "Mean of the advantages before normalization.",
    "advantage/std": "Standard deviation of the advantages before normalization.",
    "proximal/kl": "KL divergence from the proximal policy to the current one.",
    "proximal/age_env_steps": "Mean age, in env steps, of the averaged weights, or of the copy in use.",
    "proximal/age_gradient_steps": "The same in gradient steps.",
    "importance/effective_samples": "(Σw)²/Σw² of the ratios to the behavior policy, per sample.",
    "importance/capped_fraction": "Fraction of samples whose ratio to the behavior policy reached its cap.",
    "staleness/iterations": "Age of the data trained on, in iterations.",
    "staleness/gradient_steps": "Age of the data trained on, in gradient steps taken since.",
    "staleness/effective_samples": "(Σw)²/Σw² per sample of the capped ratios at the start of the iteration.",
    "staleness/learning_rate_factor": "Factor on the learning rate for stale data, if it is scaled.",
    "actors/learner_idle": "Share of the time since the last iteration that the learner waited for actors.",
    "actors/idle": "Share of that time that actors waited for weights, averaged over the actors.",
    "actors/restarts": "Actors lost and restarted since this process began.",
    "auxiliary/phases": "PPG: phases completed since the start of the run.",
    "auxiliary/clone_kl": "PPG: mean divergence from the policy before the last auxiliary phase.",
    "auxiliary/auxiliary_value_loss": "PPG: squared error of the policy encoder's value head in that phase.",
    "auxiliary/value_loss": "PPG: squared error of the value in the last auxiliary phase.",
    "auxiliary/epochs": "PPG: epochs done in the current auxiliary phase; on the display only.",
    "time/auxiliary": "PPG: seconds spent in the auxiliary phase since the last iteration.",
    "evaluation/return": "Mean score, unclipped, of the evaluation after this iteration, if one was due.",
    "evaluation/standard_error": "Standard error of evaluation/return; 0 for a single episode.",
    "evaluation/length": "Mean number of decisions per episode in that evaluation.",
    "time/evaluation": "Seconds spent evaluating after this iteration.",
    "time/rollout": "Seconds of this iteration spent acting in the environments.",
    "time/returns": "Seconds of this iteration spent on advantages and value targets.",
    "time/callback": "Seconds spent in the program's own on_iteration after this iteration.",
    "time/update": "Seconds of this iteration spent on gradient steps.",
    "time/collectives": "Several ranks: seconds of exchanges between them, included in the other times.",
    "time/other": "Seconds of this iteration spent on anything else: logs, checkpoints, the display.",
}


CUSTOM = "custom/"
"""Before the names of metrics that a program logs itself."""


def check(names: Iterable[str]) -> None:
    """Raise KeyError for the first name that is neither in METRICS nor the program's own."""
    for name in names:
        if name not in METRICS and not name.startswith(CUSTOM):
            raise KeyError(f"{name} is not in runs/metrics.py{meant(name)}")


def meant(name: str) -> str:
    """The question whether the nearest name was meant; empty if none is near."""
    near = difflib.get_close_matches(name, METRICS, n=1)
    return f"; did you mean {near[0]}?" if near else ""
