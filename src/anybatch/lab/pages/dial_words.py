"""The words of the dial's page. Its scripts choose among them, and put numbers into {placeholders}."""

FAR_AS_BEFORE = "Many small steps should take the weights as far as one large step."
AS_OLD_AS_BEFORE = (
    "The policy that each update has to stay close to should be as old as before, in env steps."
)

ROWS: dict[str, dict[str, str]] = {
    "iteration-batch": {"number": "iteration batch", "rule": "{envs} × {steps} (environments × steps)"},
    "minibatch": {
        "number": "minibatch",
        "rule": "{samples} ÷ {minibatches} (minibatches per epoch); {minibatches} × {epochs} = "
        "{gradient_steps} gradient steps per iteration",
    },
    "minibatches-limited": {
        "number": "minibatches per epoch",
        "rule": "iteration batch ÷ {limit}, rounded up",
        "why": "The minibatch stays, so their number follows the batch.",
    },
    "minibatches-configured": {
        "number": "minibatches per epoch",
        "rule": "as configured",
    },
    "learning-rate-linear": {
        "number": "learning rate",
        "rule": "× {ratio} (minibatch)",
        "why": FAR_AS_BEFORE,
    },
    "learning-rate-square-root": {
        "number": "learning rate",
        "rule": "× √{ratio} (minibatch)",
        "why": f"{FAR_AS_BEFORE} Adam divides by the size of the gradient, which is mostly noise and falls "
        "with the root of the minibatch, so only the root of the factor remains.",
    },
    "adam-beta1": {
        "number": "Adam β₁",
        "rule": "power {ratio} (minibatch), at least 0.5",
        "why": "Adam's averages should reach equally many samples back.",
    },
    "adam-beta2": {"number": "Adam β₂", "rule": "power {ratio} (minibatch), at least 0.9"},
    "proximal-ewma": {
        "number": "proximal EWMA decay",
        "meaning": "center of mass {meaning}",
        "rule": "center of mass ÷ {ratio} (env steps per gradient step)",
        "why": AS_OLD_AS_BEFORE,
    },
    "proximal-copy": {
        "number": "proximal copy every",
        "meaning": "gradient steps, mean age {meaning}",
        "rule": "mean age ÷ {ratio} (env steps per gradient step)",
        "why": AS_OLD_AS_BEFORE,
    },
    "advantage-moments": {
        "number": "advantage-statistics EWMA decay",
        "meaning": "effective window: {meaning} iterations",
        "rule": "window ÷ {ratio} (iteration batch), at least 1",
        "why": "The scale of the advantages should come from the same number of samples as before.",
    },
    "proximal-age": {
        "number": "age of the proximal policy",
        "meaning": "env steps",
        "rule": "mean age × env steps per gradient step",
    },
    "proximal-age-up-to": {
        "number": "age of the proximal policy",
        "meaning": "env steps at most",
        "rule": "× {ratio} (iteration batch), no setting for it",
    },
    "phase-length": {
        "number": "iterations per phase",
        "rule": "÷ {ratio} (iteration batch), at least 1",
        "why": "An auxiliary phase should come after the same number of env steps as before.",
    },
    "auxiliary-minibatch": {
        "number": "auxiliary minibatch",
        "rule": "× {ratio} (iteration batch), at least a quarter",
        "why": "It grows with the batch as the minibatch does; far smaller ones would take too long.",
    },
    "auxiliary-learning-rate-linear": {
        "number": "auxiliary learning rate",
        "rule": "× {ratio} (auxiliary minibatch)",
        "why": "The same as for the learning rate, with the auxiliary minibatch.",
    },
    "auxiliary-learning-rate-square-root": {
        "number": "auxiliary learning rate",
        "rule": "× √{ratio} (auxiliary minibatch)",
        "why": "The same as for the learning rate, with the auxiliary minibatch.",
    },
}
"""Rows of the table: their number, what its value means, its rule, and why the rule is as it is."""

LINES: dict[str, tuple[str, str]] = {
    "kept-above": (
        "minibatch kept",
        "{limit} samples above the tuned batch: minibatches per epoch {minibatches}, and what follows the "
        "minibatch stays the same",
    ),
    "kept": (
        "minibatch kept",
        "{limit} samples: minibatches per epoch {minibatches}, and what follows the minibatch stays the "
        "same, down to {ratio} of the tuned batch, where an iteration is one minibatch",
    ),
    "kept-not": (
        "minibatch kept",
        "not below {limit} samples, {ratio} of the tuned batch: an iteration cannot hold one such "
        "minibatch, so it is one, and what follows the minibatch is rescaled",
    ),
    "limit-reached": (
        "minibatch limit",
        "{limit} samples, {ratio} × tuned: reached, so there are more minibatches per epoch, and what "
        "follows the minibatch stays the same",
    ),
    "limit-not-reached": (
        "minibatch limit",
        "{limit} samples, {ratio} × tuned: not reached, so the minibatch follows the iteration batch",
    ),
    "limit-measured": ("noise scale", "as soon as the run has measured it, the noise scale is the limit"),
    "controller": (
        "controller",
        "{shortest} to {longest} steps: iteration batch {smallest_batch} to {largest_batch} samples, "
        "minibatch {smallest_minibatch} to {largest_minibatch}",
    ),
    "phase": (
        "phase",
        "{iterations} × {samples} = {env_steps} env steps, then {epochs} × {gradient_steps} auxiliary "
        "gradient steps",
    ),
}
"""Lines below the table: a label and a sentence."""

NOTES: dict[str, str] = {
    "larger-minibatch": "The minibatch is {ratio} times the tuned one: in one study all rules held to about "
    "16 times the tuned batch and fell at 64 times.",
    "max-grad-norm": "Gradients are clipped to a norm of {norm}; how often depends on the minibatch, and no "
    "rule corrects that.",
    "proximal-age": "The age of the proximal policy ({policy}) in env steps follows the iteration batch, "
    "here × {ratio}, and no setting corrects that; ewma keeps it.",
    "epochs": "The rules assume one policy epoch; {epochs} epochs make them approximate.",
    "num-steps": "{steps} steps per environment instead of the tuned {tuned} also change how far returns "
    "look before they bootstrap; the number of environments does not.",
    "anneal-until": "The learning rate reaches 0 at {until} env steps, before the run ends at {total}.",
    "advantage-normalization": "Advantages that are normalized over a minibatch depend on it in a way that "
    "no rule corrects; normalized over the iteration, they do not.",
    "target-kl": "A target KL of {target} ends iterations early, by an amount that depends on the batch.",
    "young-average": "The center of mass of the proximal EWMA is {center} gradient steps: below 1 it hardly "
    "holds the update back.",
    "young-copy": "The proximal copy is {age} gradient steps old on average: below 1 it hardly holds the "
    "update back.",
    "one-sample": "An iteration of one sample has a normalized advantage of 0: a decay of the advantage "
    "moments above 0 compares it with earlier ones.",
    "phase-length": "A phase would be {exact} iterations; {iterations} is the nearest possible.",
}
"""Reasons why the rules may not hold in a run."""

REFUSALS: dict[str, str] = {
    "count": "{setting} = {value}: must be a whole number of at least 1",
    "too-large": "{setting} = {value}: must not exceed {largest}",
    "positive": "{setting} = {value}: must be positive",
    "decay": "{setting} = {value}: must be in [0, 1)",
    "rules": "rescale = {text}: must be all, none or a list of rules, with at most one form of the learning "
    "rate",
    "advantage-decay": "objective.advantage-decay = {decay} needs moments kept across iterations, but "
    "objective.advantage-normalization = {normalization}",
    "limit-below": "minibatch = {limit} is below the tuned minibatch of {minibatch} samples; more "
    "minibatches per epoch make minibatches smaller",
    "limit-controller": "minibatch = noise-scale and controller.kind = {kind} both change the "
    "minibatch within a run: use one of them; a number works with every controller",
    "keep-controller": "controller.kind = noise_scale changes the minibatch, which minibatch = keep does not "
    "allow",
    "controller-steps": "num-steps = {steps} does not fit controller.kind = {kind}, which sets the rollout "
    "length itself: keep the tuned {tuned}",
    "minibatches": "update.minibatches-per-epoch = {minibatches} is more than the {envs} × {steps} = "
    "{samples} samples of an iteration",
    "uncountable": "an iteration batch is too large to count",
    "ratio": "the batch is {ratio} times the tuned one: must be within a factor of {largest}",
}
"""Reasons why settings cannot be planned."""

PAGE: dict[str, str] = {
    "kept": "kept: its rule is turned off",
    "at limit": "; minibatch kept or at its limit",
    "while changing": "; kept while the batch changes",
    "the tuned batch": "the tuned batch",
    "part": "{ratio} of the tuned batch",
    "times": "{ratio} × the tuned batch",
    "summary": "Environments: {envs}, {share}. Learning rate: {rate} instead of {tuned}.",
    "summary, same rate": "Environments: {envs}, {share}. Learning rate: {rate}, as tuned.",
    "slider": "environments: {envs}",
    "mark": "tuned at {tuned}",
    "nearest": "Here: {share}. Each figure shows the nearest recorded batch.",
    "preset": "{description}. Numbers from: {source}.",
    "copied": "Copied",
    "selected": "Selected: press Ctrl+C",
}
"""Words around the table."""

COLUMNS = ("hyperparameter", "tuned at", "this run", "rule")

WORDS = {
    "rows": ROWS,
    "lines": LINES,
    "notes": NOTES,
    "refusals": REFUSALS,
    "page": PAGE,
    "columns": COLUMNS,
}
