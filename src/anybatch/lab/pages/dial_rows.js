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
  return rows;
}

function phaseRows(settings, plan, rules) {
  const [phase, limit, ratio] = [plan.phase, plan.minibatch_limit, plan.ratios.iteration_batch];
  const tunedMinibatch = settings["phase.auxiliary-minibatch"];
  const auxiliary = rowState("auxiliary-phase", rules, limit !== null && ratio > limit.ratio);
  return [
    {
      name: "phase-length", tuned: settings["phase.policy-iterations"], here: phase.policy_iterations,
      state: rowState("phase-length", rules, false), numbers: { ratio },
    },
    {
      name: "auxiliary-minibatch", tuned: tunedMinibatch, here: phase.auxiliary_minibatch,
      state: auxiliary, numbers: { ratio: Math.min(ratio, limit?.ratio ?? Infinity) },
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
    const name = limit.reached ? "limit-reached" : "limit-not-reached";
    lines.push({ name, numbers: { limit: limit.samples, ratio: limit.ratio } });
    if (limit.measured) lines.push({ name: "limit-measured", numbers: {} });
  }
  if (range !== null) {
    const [smallest, largest] = range.map((steps) => {
      const minibatches = settings["update.minibatches-per-epoch"];
      const found = withProducts({ ...batch, num_steps: steps, minibatches_per_epoch: minibatches });
      return limit === null ? found : within(found, limit.samples);
    });
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

// batch/preconditions.py

function notesOf(settings, plan) {
  const rules = rescaleRules(settings.rescale);
  const rescales = rules.names.size > 0 && Object.values(plan.ratios).some((ratio) => ratio !== 1);
  const [epochs, until, total] = [
    settings["update.epochs"], settings["optimizer.anneal-until"], settings["total-env-steps"],
  ];
  const [steps, tuned] = [settings["num-steps"], plan.tuned_at.num_steps];
  const notes = [
    [rescales && epochs > 1, "epochs", { epochs }],
    [steps !== tuned, "num-steps", { steps, tuned }],
    [until !== null && settings["optimizer.anneal-to"] === 0 && until < total, "anneal-until", { until, total }],
  ];
  if (hasPolicy(settings)) notes.push(...policyNotes(settings, plan, rescales));
  if (hasPhases(settings)) {
    const [exact, iterations] = [
      settings["phase.policy-iterations"] / plan.ratios.iteration_batch, plan.phase.policy_iterations,
    ];
    const isClose = Math.abs(exact - iterations) <= 1e-9 * Math.max(exact, iterations);
    notes.push([rules.names.has("phase-length") && !isClose, "phase-length", { exact, iterations }]);
  }
  return notes.filter(([applies]) => applies).map(([, name, numbers]) => ({ name, numbers }));
}

function policyNotes(settings, plan, rescales) {
  const numbers = plan.hyperparameters;
  const [normalization, target] = [settings["objective.advantage-normalization"], settings["update.target-kl"]];
  const [center, age] = [centerOfMass(numbers.proximal_decay), meanCopyAge(numbers.proximal_copy_every)];
  const isOneSample = settings["num-envs"] * settings["num-steps"] === 1 && numbers.advantage_decay === 0;
  return [
    [rescales && normalization === "minibatch", "advantage-normalization", {}],
    [rescales && target !== null, "target-kl", { target }],
    [settings["proximal.policy"] === "ewma" && Number(center.toFixed(9)) < 1, "young-average", { center }],
    [settings["proximal.policy"] === "periodic" && age < 1, "young-copy", { age }],
    [isOneSample && normalization === "iteration", "one-sample", {}],
  ];
}
