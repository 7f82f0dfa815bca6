// What the page shows of a plan: rows of the table, lines and notes, each as the name of its words (dial_data.py) and the
// numbers in them.

/** A number follows its rule, is kept where the rule is off, or stays at the minibatch limit. */
function rowState(rule, rules, isHeld) {
  if (!rules.names.has(rule)) return "kept";
  return isHeld ? "limit" : "follows";
}

function batchRows({ batch, tuned_at: tuned }) {
  return [
    {
      name: "iteration-batch", tuned: tuned.iteration_batch, here: batch.iteration_batch, state: "batch",
      numbers: { envs: batch.num_envs, steps: batch.num_steps },
    },
    {
      name: "minibatch", tuned: tuned.minibatch, here: batch.minibatch, state: "batch",
      numbers: {
        samples: batch.iteration_batch, minibatches: batch.minibatches_per_epoch, epochs: batch.epochs,
        gradient_steps: batch.gradient_steps_per_iteration,
      },
    },
  ];
}

function rowsOf(settings, plan) {
  const rules = rescaleRules(settings.rescale);
  const rows = [...limitRows(plan), ...optimizerRows(settings, plan, rules)];
  if (hasPolicy(settings)) rows.push(...policyRows(settings, plan, rules));
  if (hasPhases(settings)) rows.push(...phaseRows(settings, plan, rules));
  return rows;
}

const isHeld = (plan) => plan.minibatch_limit !== null && plan.minibatch_limit.holds_numbers;

function limitRows(plan) {
  const limit = plan.minibatch_limit;
  if (limit === null) return [];
  return [{
    name: limit.reached ? "minibatches-limited" : "minibatches-configured",
    tuned: plan.tuned_at.minibatches_per_epoch, here: plan.batch.minibatches_per_epoch,
    state: "batch", numbers: { limit: limit.samples },
  }];
}

function optimizerRows(settings, plan, rules) {
  const [numbers, ratio, optimizer] = [plan.hyperparameters, plan.ratios.minibatch, settings["optimizer.name"]];
  const rows = [{
    name: `learning-rate-${rules.form ?? LEARNING_RATE_RULE[optimizer]}`,
    tuned: settings["optimizer.learning-rate"], here: numbers.learning_rate,
    state: rowState("learning-rate", rules, isHeld(plan)), numbers: { ratio },
  }];
  if (!rules.names.has("adam-betas") || optimizer === "sgd") return rows;
  for (const beta of ["beta1", "beta2"]) {
    rows.push({
      name: `adam-${beta}`, tuned: settings[`optimizer.${beta}`], here: numbers[beta],
      state: rowState("adam-betas", rules, isHeld(plan)), numbers: { ratio },
    });
  }
  return rows;
}

function policyRows(settings, plan, rules) {
  const [numbers, ratios] = [plan.hyperparameters, plan.ratios];
  const rows = [];
  const proximal = {
    ewma: ["proximal-ewma", settings["proximal.ewma-decay"], numbers.proximal_decay, centerOfMass],
    periodic: ["proximal-copy", settings["proximal.copy-every"], numbers.proximal_copy_every, meanCopyAge],
  }[settings["proximal.policy"]];
  if (proximal) {
    const [name, tuned, here, meaning] = proximal;
    const ratio = ratios.env_steps_per_gradient_step;
    rows.push({ name, tuned, here, meaning, state: rowState(name, rules, isHeld(plan)), numbers: { ratio } });
  }
  if (settings["objective.advantage-normalization"] === "iteration") {
    rows.push({
      name: "advantage-moments", tuned: settings["objective.advantage-decay"], here: numbers.advantage_decay,
      meaning: effectiveSampleSize, state: rowState("advantage-moments", rules, false),
      numbers: { ratio: ratios.iteration_batch },
    });
  }
  return [...rows, ageRow(settings, plan)];
}

/** The age of the proximal policy in env steps: its mean where a setting decides it, else its largest. */
function ageRow(settings, { batch, tuned_at: tuned, hyperparameters: numbers }) {
  const age = {
    ewma: (decay, _, perStep) => centerOfMass(decay) * perStep,
    periodic: (_, every, perStep) => meanCopyAge(every) * perStep,
  }[settings["proximal.policy"]];
  const of = (sizes, decay, every) =>
    (age ? age(decay, every, sizes.env_steps_per_gradient_step) : sizes.iteration_batch);
  const then = of(tuned, settings["proximal.ewma-decay"], settings["proximal.copy-every"]);
  const here = of(batch, numbers.proximal_decay, numbers.proximal_copy_every);
  return {
    name: age ? "proximal-age" : "proximal-age-up-to", tuned: then, here, state: "batch",
    numbers: { ratio: here / then },
  };
}

function phaseRows(settings, plan, rules) {
  const [phase, ratio] = [plan.phase, plan.ratios.iteration_batch];
  const tunedMinibatch = settings["phase.auxiliary-minibatch"];
  const share = grown(plan.minibatch_limit, ratio, plan.tuned_at);
  const auxiliary = rowState("auxiliary-phase", rules, share !== ratio);
  return [
    {
      name: "phase-length", tuned: settings["phase.policy-iterations"], here: phase.policy_iterations,
      state: rowState("phase-length", rules, false), numbers: { ratio },
    },
    {
      name: "auxiliary-minibatch", tuned: tunedMinibatch, here: phase.auxiliary_minibatch,
      state: auxiliary, numbers: { ratio: share },
    },
    {
      name: `auxiliary-learning-rate-${rules.form ?? LEARNING_RATE_RULE.adam}`,
      tuned: settings["phase.auxiliary-learning-rate"], here: phase.auxiliary_learning_rate,
      state: auxiliary, numbers: { ratio: phase.auxiliary_minibatch / tunedMinibatch },
    },
  ];
}

function linesOf(settings, plan) {
  const { batch, minibatch_limit: limit, step_range: range, phase } = plan;
  const lines = [];
  if (limit !== null) {
    lines.push(limitLine(plan, limit));
    if (limit.choice === "noise-scale") lines.push({ name: "limit-measured", numbers: {} });
  }
  if (range !== null) {
    const isDecided = limit === null || limit.choice === "auto"; // once, at the start of the run
    const minibatches = isDecided ? batch.minibatches_per_epoch : settings["update.minibatches-per-epoch"];
    const [smallest, largest] = range.map((steps) => within(
      withProducts({ ...batch, num_steps: steps, minibatches_per_epoch: minibatches }), isDecided ? null : limit,
    ));
    lines.push({
      name: "controller",
      numbers: {
        shortest: smallest.num_steps, longest: largest.num_steps,
        smallest_batch: smallest.iteration_batch, largest_batch: largest.iteration_batch,
        smallest_minibatch: smallest.minibatch, largest_minibatch: largest.minibatch,
      },
    });
  }
  if (phase !== null) {
    lines.push({
      name: "phase",
      numbers: {
        iterations: phase.policy_iterations, samples: batch.iteration_batch, env_steps: phase.env_steps,
        epochs: phase.auxiliary_epochs, gradient_steps: phase.auxiliary_minibatches,
      },
    });
  }
  return lines;
}

function limitLine({ batch, tuned_at: tuned }, limit) {
  const numbers = { limit: limit.samples, minibatches: batch.minibatches_per_epoch };
  if (limit.choice === "auto") return { name: "kept-above", numbers };
  if (limit.choice === "keep") {
    const name = batch.iteration_batch < limit.samples ? "kept-not" : "kept";
    return { name, numbers: { ...numbers, ratio: limit.samples / tuned.iteration_batch } };
  }
  const name = limit.reached ? "limit-reached" : "limit-not-reached";
  return { name, numbers: { limit: limit.samples, ratio: limit.ratio } };
}

function notesOf(settings, plan) {
  const rules = rescaleRules(settings.rescale);
  const ratio = plan.ratios.minibatch;
  const isKept = ratio === 1 && plan.ratios.env_steps_per_gradient_step === 1;
  const rescales = rules.names.size > 0 && !isKept;
  const norm = settings["optimizer.max-grad-norm"];
  const [epochs, until, total] = [
    settings["update.epochs"], settings["optimizer.anneal-until"], settings["total-env-steps"],
  ];
  const [steps, tuned] = [settings["num-steps"], plan.tuned_at.num_steps];
  const notes = [
    [rescales && ratio > 1, "larger-minibatch", { ratio }],
    [rescales && ratio !== 1 && norm !== null, "max-grad-norm", { norm }],
    [rescales && epochs > 1, "epochs", { epochs }],
    [steps !== tuned, "num-steps", { steps, tuned }],
    [until !== null && settings["optimizer.anneal-to"] === 0 && until < total, "anneal-until", { until, total }],
  ];
  if (hasPolicy(settings)) notes.push(...policyNotes(settings, plan, rules, rescales));
  if (hasPhases(settings)) {
    const [exact, iterations] = [
      settings["phase.policy-iterations"] / plan.ratios.iteration_batch, plan.phase.policy_iterations,
    ];
    const isClose = Math.abs(exact - iterations) <= 1e-9 * Math.max(exact, iterations);
    notes.push([rules.names.has("phase-length") && !isClose, "phase-length", { exact, iterations }]);
  }
  return notes.filter(([applies]) => applies).map(([, name, numbers]) => ({ name, numbers }));
}

function policyNotes(settings, plan, rules, rescales) {
  const numbers = plan.hyperparameters;
  const [normalization, target] = [settings["objective.advantage-normalization"], settings["update.target-kl"]];
  const [center, age] = [centerOfMass(numbers.proximal_decay), meanCopyAge(numbers.proximal_copy_every)];
  const [policy, ratio] = [settings["proximal.policy"], plan.ratios.iteration_batch];
  const isBound = ["behavior", "iteration_start"].includes(policy) && rules.names.size > 0 && ratio !== 1;
  const isOneSample = settings["num-envs"] * settings["num-steps"] === 1 && numbers.advantage_decay === 0;
  return [
    [isBound, "proximal-age", { policy, ratio }],
    [rescales && normalization === "minibatch", "advantage-normalization", {}],
    [rescales && target !== null, "target-kl", { target }],
    [rescales && policy === "ewma" && Number(center.toFixed(9)) < 1, "young-average", { center }],
    [rescales && policy === "periodic" && age < 1, "young-copy", { age }],
    [isOneSample && normalization === "iteration", "one-sample", {}],
  ];
}
