// The arithmetic of a plan: rules.py, dial/plan.py and the configs of PPO and PPG.
// Settings are flat, named as the flags of the command line; plans have the names of `anybatch plan --json`.
// tests/lab/test_dial_page.py compares them with Python's.

const LARGEST_RATIO = 1e6;
const MOST_ENVS = 2 ** 20;
const LARGEST_COUNT = 1e12;
const SMALLEST_AUXILIARY_SHARE = 1 / 4;
const ADAM_BETA_FLOORS = [0.5, 0.9];
const LEARNING_RATE_RULE = { adam: "square-root", radam: "square-root", sgd: "linear" };
const RESCALE_RULES = [
  "learning-rate", "proximal-ewma", "proximal-copy", "advantage-moments", "phase-length", "auxiliary-phase", "adam-betas",
];
const DEFAULT_RESCALE_RULES = RESCALE_RULES.slice(0, -1);
const COUNTS = [
  "num-envs", "num-steps", "update.minibatches-per-epoch", "update.epochs", "tuned-at.num-envs", "tuned-at.num-steps",
  "tuned-at.minibatches-per-epoch", "tuned-at.epochs", "proximal.copy-every", "phase.policy-iterations",
  "phase.auxiliary-minibatch",
];
const POSITIVE = ["optimizer.learning-rate", "phase.auxiliary-learning-rate"];
const DECAYS = ["proximal.ewma-decay", "objective.advantage-decay", "optimizer.beta1", "optimizer.beta2"];

/** What cannot be planned: the name of its sentence (dial_data.py), and what stands in it. */
class Refusal extends Error {
  constructor(name, values) {
    super(name);
    Object.assign(this, { name, values });
  }
}

function require(condition, name, values = {}) {
  if (!condition) throw new Refusal(name, values);
}

const hasPolicy = (settings) => settings.algorithm !== "pqn";
const hasPhases = (settings) => settings.algorithm === "ppg";
const hasController = (settings) => settings["controller.kind"] !== "fixed";

/** The nearest whole number, of two the even one, as Python rounds. */
function rounded(value) {
  const below = Math.floor(value);
  const rest = value - below;
  if (rest !== 0.5) return rest < 0.5 ? below : below + 1;
  return below % 2 === 0 ? below : below + 1;
}

// rules.py

const centerOfMass = (decay) => decay / (1 - decay);
const effectiveSampleSize = (decay) => (1 + decay) / (1 - decay);
const meanCopyAge = (every) => (every - 1) / 2;
const rescaledProximalDecay = (decay, ratio) => decay / (ratio + decay * (1 - ratio));
const rescaledCopyEvery = (every, ratio) => Math.max(rounded(1 + (every - 1) / ratio), 1);
const rescaledPhaseIterations = (iterations, ratio) => Math.max(rounded(iterations / ratio), 1);
const rescaledAdamBeta = (beta, ratio, floor) => Math.max(beta ** ratio, Math.min(beta, floor));

function rescaledLearningRate(learningRate, ratio, optimizer, form) {
  return learningRate * ((form ?? LEARNING_RATE_RULE[optimizer]) === "linear" ? ratio : Math.sqrt(ratio));
}

function rescaledAdvantageDecay(decay, ratio) {
  const unrounded = (decay * (1 + ratio) + (1 - ratio)) / (1 + ratio + decay * (1 - ratio));
  return Math.max(unrounded, 0);
}

function minibatchesWithin(limit, iterationBatch, minibatches) {
  // A quotient that should be whole must not be taken for a little more.
  return Math.ceil(Number(Math.max(minibatches, iterationBatch / limit).toFixed(9)));
}

/** The rules in a list such as proximal-ewma,learning-rate=linear; `all` or `none` of them. */
function rescaleRules(text) {
  const names = new Set();
  const forms = new Set();
  for (const part of text === "none" ? [] : text.split(",").map((word) => word.trim())) {
    const form = /^learning-rate=(square-root|linear)$/.exec(part);
    if (part === "all") DEFAULT_RESCALE_RULES.forEach((name) => names.add(name));
    else if (form) forms.add(form[1]);
    else require(RESCALE_RULES.includes(part), "rules", { text });
    if (RESCALE_RULES.includes(part)) names.add(part);
    if (form) names.add("learning-rate");
  }
  require(forms.size <= 1, "rules", { text });
  return { names, form: [...forms][0] ?? null };
}

// config/planned.py and dial/plan.py

function withProducts(batch) {
  const iteration = batch.num_envs * batch.num_steps;
  const steps = batch.minibatches_per_epoch * batch.epochs;
  return {
    ...batch,
    iteration_batch: iteration,
    minibatch: iteration / batch.minibatches_per_epoch,
    gradient_steps_per_iteration: steps,
    env_steps_per_gradient_step: iteration / steps,
  };
}

function within(batch, limit) {
  if (limit === null) return batch;
  const fewest = limit.choice === "keep" ? 1 : batch.minibatches_per_epoch;
  return withMinibatches(batch, minibatchesWithin(limit.samples, batch.iteration_batch, fewest));
}

const withMinibatches = (batch, minibatches) => withProducts({ ...batch, minibatches_per_epoch: minibatches });

function configuredBatch(settings) {
  const steps = hasController(settings) ? settings["controller.shortest"] : settings["num-steps"];
  return withProducts({
    num_envs: settings["num-envs"],
    num_steps: settings["num-steps"],
    minibatches_per_epoch: Math.min(settings["update.minibatches-per-epoch"], settings["num-envs"] * steps),
    epochs: settings["update.epochs"],
  });
}

function tunedBatch(settings) {
  return withProducts({
    num_envs: settings["tuned-at.num-envs"],
    num_steps: settings["tuned-at.num-steps"],
    minibatches_per_epoch: settings["tuned-at.minibatches-per-epoch"],
    epochs: settings["tuned-at.epochs"],
  });
}

/** The batch of the first iteration: with a controller, its own rollout length and epochs. */
function startingBatch(settings, configured) {
  if (!hasController(settings)) return configured;
  const steps = settings["controller.start"];
  const grown = Math.floor((configured.epochs * steps) / settings["tuned-at.num-steps"]);
  const epochs = settings["controller.epochs"] === "at_least" ? Math.max(grown, configured.epochs) : configured.epochs;
  return withProducts({ ...configured, num_steps: steps, epochs });
}

function limitOf(settings, tuned) {
  const asked = settings.minibatch;
  if (asked === "scaled") return null;
  const isNumber = typeof asked === "number";
  require(!isNumber || asked >= tuned.minibatch, "limit-below", { limit: asked, minibatch: tuned.minibatch });
  const kept = Math.max(tuned.iteration_batch / settings["update.minibatches-per-epoch"], 1);
  const samples = isNumber ? asked : asked === "noise-scale" ? tuned.minibatch : kept;
  return { choice: isNumber ? "number" : asked, samples, ratio: samples / tuned.minibatch };
}

function withEffect(limit, configured, batch, followed) {
  if (limit === null) return null;
  const minibatches = configured.minibatches_per_epoch;
  const reached = batch.minibatches_per_epoch !== minibatches;
  if (limit.choice === "auto" && !reached) return null;
  const holdsNumbers = {
    auto: followed.num_steps === configured.num_steps,
    keep: followed.iteration_batch >= limit.samples,
  }[limit.choice] ?? followed.minibatches_per_epoch !== minibatches;
  return { ...limit, reached, holds_numbers: holdsNumbers };
}

/** How much larger than tuned another minibatch is that grows along with the iteration batch. */
function grown(limit, ratio, tuned) {
  if (limit === null) return ratio;
  if (limit.choice === "keep") return Math.min(1, (ratio * tuned.iteration_batch) / limit.samples);
  return Math.min(ratio, limit.choice === "auto" ? 1 : limit.ratio);
}

// config/run.py and config/ppo.py

function ratiosOf(batch, tuned) {
  const ratios = {
    minibatch: batch.minibatch / tuned.minibatch,
    env_steps_per_gradient_step: batch.env_steps_per_gradient_step / tuned.env_steps_per_gradient_step,
    iteration_batch: batch.iteration_batch / tuned.iteration_batch,
  };
  for (const ratio of Object.values(ratios)) {
    require(1 / LARGEST_RATIO <= ratio && ratio <= LARGEST_RATIO, "ratio", { ratio, largest: LARGEST_RATIO });
  }
  return ratios;
}

function rescaledNumbers(settings, ratios) {
  const rules = rescaleRules(settings.rescale);
  const ratio = (rule, value) => (rules.names.has(rule) ? value : 1);
  const betaRatio = ratio("adam-betas", ratios.minibatch);
  const stepRatio = ratios.env_steps_per_gradient_step;
  const isPeriodic = hasPolicy(settings) && settings["proximal.policy"] === "periodic";
  return {
    learning_rate: rescaledLearningRate(
      settings["optimizer.learning-rate"], ratio("learning-rate", ratios.minibatch), settings["optimizer.name"], rules.form,
    ),
    beta1: rescaledAdamBeta(settings["optimizer.beta1"], betaRatio, ADAM_BETA_FLOORS[0]),
    beta2: rescaledAdamBeta(settings["optimizer.beta2"], betaRatio, ADAM_BETA_FLOORS[1]),
    proximal_decay: hasPolicy(settings)
      ? rescaledProximalDecay(settings["proximal.ewma-decay"], ratio("proximal-ewma", stepRatio)) : 0,
    advantage_decay: hasPolicy(settings)
      ? rescaledAdvantageDecay(settings["objective.advantage-decay"], ratio("advantage-moments", ratios.iteration_batch)) : 0,
    proximal_copy_every: isPeriodic
      ? rescaledCopyEvery(settings["proximal.copy-every"], ratio("proximal-copy", stepRatio)) : 0,
  };
}

// config/ppg.py

function phaseOf(settings, batch, tuned, ratio, limit) {
  const rules = rescaleRules(settings.rescale);
  const tunedMinibatch = settings["phase.auxiliary-minibatch"];
  const iterations = rescaledPhaseIterations(
    settings["phase.policy-iterations"], rules.names.has("phase-length") ? ratio : 1,
  );
  const share = rules.names.has("auxiliary-phase") ? Math.max(grown(limit, ratio, tuned), SMALLEST_AUXILIARY_SHARE) : 1;
  const wholePhase = iterations * ratio * tuned.iteration_batch;
  const minibatch = Math.max(1, rounded(Math.min(tunedMinibatch * share, wholePhase)));
  const envSteps = iterations * batch.iteration_batch;
  return {
    policy_iterations: iterations,
    env_steps: envSteps,
    auxiliary_epochs: settings["phase.auxiliary-epochs"],
    auxiliary_minibatch: minibatch,
    auxiliary_minibatches: Math.min(Math.max(1, rounded(envSteps / minibatch)), envSteps),
    auxiliary_learning_rate: rescaledLearningRate(
      settings["phase.auxiliary-learning-rate"], minibatch / tunedMinibatch, "adam", rules.form,
    ),
  };
}

// dial/plan.py

function planOf(settings) {
  refuseImpossible(settings);
  const configured = configuredBatch(settings);
  const tuned = tunedBatch(settings);
  let batch = startingBatch(settings, configured);
  let followed = settings["controller.compensate"] === "all" ? batch : configured;
  let limit = limitOf(settings, tuned);
  const minibatches = within(configured, limit).minibatches_per_epoch;
  const limited = (sizes) => (limit?.choice === "auto" ? withMinibatches(sizes, minibatches) : within(sizes, limit));
  [batch, followed] = [limited(batch), limited(followed)];
  limit = withEffect(limit, configured, batch, followed);
  const ratios = ratiosOf(followed, tuned);
  return {
    batch,
    tuned_at: tuned,
    ratios,
    hyperparameters: rescaledNumbers(settings, ratios),
    phase: hasPhases(settings)
      ? phaseOf(settings, batch, tuned, ratios.iteration_batch, limit) : null,
    minibatch_limit: limit,
    step_range: hasController(settings) ? [settings["controller.shortest"], settings["controller.longest"]] : null,
  };
}

function refuseImpossible(settings) {
  const given = (names) => names.filter((name) => settings[name] !== undefined).map((name) => [name, settings[name]]);
  for (const [setting, value] of given(COUNTS)) {
    const largest = setting === "num-envs" ? MOST_ENVS : LARGEST_COUNT;
    require(Number.isInteger(value) && value >= 1, "count", { setting, value });
    require(value <= largest, "too-large", { setting, value, largest });
  }
  for (const [setting, value] of given(POSITIVE)) {
    require(Number.isFinite(value) && value > 0, "positive", { setting, value });
  }
  for (const [setting, value] of given(DECAYS)) require(value >= 0 && value < 1, "decay", { setting, value });
  refuseDecay(settings);
  refuseLimit(settings);
  refuseController(settings);
  require(
    Math.max(configuredBatch(settings).iteration_batch, tunedBatch(settings).iteration_batch) <= Number.MAX_SAFE_INTEGER,
    "uncountable",
  );
}

function refuseDecay(settings) {
  if (!hasPolicy(settings)) return;
  const [decay, normalization] = [settings["objective.advantage-decay"], settings["objective.advantage-normalization"]];
  require(decay === 0 || normalization === "iteration", "advantage-decay", { decay, normalization });
}

function refuseLimit(settings) {
  const { minibatch, "controller.kind": kind } = settings;
  if (minibatch === "noise-scale") require(!hasController(settings), "limit-controller", { kind });
  require(minibatch !== "keep" || kind !== "noise_scale", "keep-controller");
  if (typeof minibatch !== "number") return;
  require(Number.isInteger(minibatch) && minibatch >= 1, "count", { setting: "minibatch", value: minibatch });
}

function refuseController(settings) {
  const [steps, tuned, kind] = [settings["num-steps"], settings["tuned-at.num-steps"], settings["controller.kind"]];
  require(!hasController(settings) || steps === tuned, "controller-steps", { steps, kind, tuned });
}
