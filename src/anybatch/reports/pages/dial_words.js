// A plan in words, those of dial/table.py, dial/rows.py and the configs of PPO and PPG, and numbers as Python writes them.

/** The digits of a positive number, rounded to `keep` of them, of two equally near the even one, and the power of ten. */
function digitsOf(value, keep) {
  const [mantissa, exponent] = value.toExponential(100).split("e"); // exact, but for what no rounding here depends on
  const digits = mantissa.replace(".", "");
  let power = Number(exponent);
  if (keep < 0) return ["0", power];
  const [kept, rest] = [digits.slice(0, keep), digits.slice(keep)];
  const isTie = /^50*$/.test(rest);
  const isOdd = Number(kept.slice(-1)) % 2 === 1;
  const up = isTie ? isOdd : rest[0] >= "5";
  let number = BigInt(kept || "0") + (up ? 1n : 0n);
  let text = String(number).padStart(keep, "0");
  if (text.length > keep) power += 1;
  return [text, power];
}

const grouped = (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ",");

/** Python's f"{value:.6g}" with `digits` of them; with commas, f"{value:,.6g}". */
function general(value, digits, commas = false) {
  if (value < 0) return `-${general(-value, digits, commas)}`;
  if (value === 0) return "0";
  const [found, power] = digitsOf(value, digits);
  const all = found.slice(0, digits);
  if (power < -4 || power >= digits) {
    const fraction = all.slice(1).replace(/0+$/, "");
    const sign = power < 0 ? "-" : "+";
    return `${all[0]}${fraction && `.${fraction}`}e${sign}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  const whole = power >= 0 ? all.slice(0, power + 1) : "0";
  const fraction = (power >= 0 ? all.slice(power + 1) : "0".repeat(-power - 1) + all).replace(/0+$/, "");
  return `${commas ? grouped(whole) : whole}${fraction && `.${fraction}`}`;
}

/** text.py */
function numberText(value, digits) {
  return Math.abs(value) >= 10 ** digits - 0.5 ? fixed(value, 0) : general(value, digits, true);
}

/** Python's f"{value:,.1f}" with `decimals` of them. */
function fixed(value, decimals) {
  if (value === 0) return (0).toFixed(decimals);
  const power = Number(value.toExponential(100).split("e")[1]);
  const [digits] = digitsOf(value, power + 1 + decimals);
  const text = digits.padStart(decimals + 1, "0");
  const whole = grouped(text.slice(0, text.length - decimals));
  return decimals ? `${whole}.${text.slice(text.length - decimals)}` : whole;
}

/** Python's f"{value:,}" of a whole number. */
const counted = (value) => grouped(String(value));

/** How Python writes a number by itself. */
function plain(value) {
  const [mantissa, exponent] = value.toExponential().split("e");
  const isSmall = value !== 0 && Math.abs(value) < 1e-4;
  return isSmall ? `${mantissa}e-${String(-exponent).padStart(2, "0")}` : String(value);
}

const plural = (count) => (count === 1 ? "" : "s");
const several = (count, noun) => `${counted(count)} ${noun}${plural(count)}`;

// dial/table.py: pairs of a label and what stands behind it.

function linesOf(settings, plan) {
  return [
    ...batchLines(plan.batch),
    ...limitLines(settings, plan),
    ...controllerLines(settings, plan),
    ...phaseLines(plan),
  ];
}

function batchLines(batch) {
  const minibatch = fixed(batch.minibatch, Number.isInteger(batch.minibatch) ? 0 : 1);
  return [
    [
      "iteration batch",
      `${several(batch.num_envs, "env")} × ${several(batch.num_steps, "step")} = ` +
        `${several(batch.iteration_batch, "sample")}`,
    ],
    [
      "minibatch",
      `${counted(batch.iteration_batch)} ÷ ${counted(batch.minibatches_per_epoch)} = ` +
        `${minibatch} sample${plural(batch.minibatch)}, ${several(batch.epochs, "epoch")} = ` +
        `${several(batch.gradient_steps_per_iteration, "gradient step")} per iteration`,
    ],
  ];
}

function limitLines(settings, plan) {
  const limit = plan.minibatch_limit;
  if (limit === null) return [];
  const start = limit.measured ? ", until the noise scale is measured; then the noise scale" : "";
  const minibatches = settings["update.minibatches-per-epoch"];
  const effect = limit.reached
    ? `reached, so ${counted(plan.batch.minibatches_per_epoch)} minibatches per epoch instead of ` +
      `${counted(minibatches)}, and numbers that follow the minibatch stay the same`
    : `not reached, so ${counted(minibatches)} minibatch${minibatches > 1 ? "es" : ""} per epoch as configured, and ` +
      "the minibatch follows the iteration batch";
  return [[
    "minibatch limit",
    `${numberText(limit.samples, 6)} samples, ${numberText(limit.ratio, 4)} × tuned${start}: ${effect}`,
  ]];
}

function controllerLines(settings, plan) {
  if (plan.step_range === null) return [];
  const [smallest, largest] = plan.step_range.map((steps) => {
    const batch = withProducts({
      ...plan.batch, num_steps: steps, minibatches_per_epoch: settings["update.minibatches-per-epoch"],
    });
    return plan.minibatch_limit === null ? batch : within(batch, plan.minibatch_limit.samples);
  });
  return [[
    "controller",
    `${counted(smallest.num_steps)} to ${counted(largest.num_steps)} steps: iteration batch ` +
      `${counted(smallest.iteration_batch)} to ${counted(largest.iteration_batch)} samples, minibatch ` +
      `${fixed(smallest.minibatch, 0)} to ${fixed(largest.minibatch, 0)}`,
  ]];
}

function phaseLines(plan) {
  const phase = plan.phase;
  if (phase === null) return [];
  return [[
    "phase",
    `${several(phase.policy_iterations, "iteration")} × ${counted(plan.batch.iteration_batch)} = ` +
      `${several(phase.env_steps, "env step")}, then ${several(phase.auxiliary_epochs, "auxiliary epoch")} of ` +
      `${several(phase.auxiliary_minibatches, "gradient step")}`,
  ]];
}

// dial/rows.py and plan_rows of the configs

function rowsOf(settings, plan) {
  const rules = rescaleRules(settings.rescale);
  const limit = plan.minibatch_limit;
  const ofMinibatch = limit !== null && limit.holds_numbers ? "minibatch limit" : "minibatch";
  let rows = optimizerRows(settings, plan, rules, ofMinibatch);
  if (hasPolicy(settings)) rows.push(...policyRows(settings, plan, rules, ofMinibatch));
  if (hasPhases(settings)) rows.push(...phaseRows(settings, plan, rules));
  rows = rows.map((row) => ({ ...row, rule: row.rule + held(row) + whileItChanges(settings) }));
  return limit === null ? rows : [minibatchesRow(plan, limit), ...rows];
}

function optimizerRows(settings, plan, rules, regime) {
  const [numbers, ratio, optimizer] = [plan.hyperparameters, plan.ratios.minibatch, settings["optimizer.name"]];
  const rows = [{
    number: "learning rate",
    tuned_at: general(settings["optimizer.learning-rate"], 6),
    this_run: general(numbers.learning_rate, 6),
    rule: ruleOf("learning-rate", rules, learningRateRule(ratio, "minibatch", optimizer, rules)),
    regime: regimeOf("learning-rate", rules, regime),
  }];
  if (!rules.names.has("adam-betas") || optimizer === "sgd") return rows;
  const betas = (first, second) => `${general(first, 6)}, ${general(second, 8)}`;
  return [...rows, {
    number: "Adam β₁, β₂",
    tuned_at: betas(settings["optimizer.beta1"], settings["optimizer.beta2"]),
    this_run: betas(numbers.beta1, numbers.beta2),
    rule: `power ${ratioText(ratio)} (minibatch), at least ${ADAM_BETA_FLOORS.join(" and ")}`,
    regime,
  }];
}

function minibatchesRow(plan, limit) {
  return {
    number: "minibatches per epoch",
    tuned_at: counted(plan.tuned_at.minibatches_per_epoch),
    this_run: counted(plan.batch.minibatches_per_epoch),
    rule: limit.reached
      ? `iteration batch ÷ minibatch limit of ${numberText(limit.samples, 6)}, rounded up`
      : "as configured, below the minibatch limit",
    regime: limit.reached ? "iteration batch" : "kept",
  };
}

function policyRows(settings, plan, rules, regime) {
  const rows = [];
  if (["ewma", "periodic"].includes(settings["proximal.policy"])) rows.push(proximalRow(settings, plan, rules, regime));
  if (settings["objective.advantage-normalization"] !== "iteration") return rows;
  const shown = (decay) => decayWords(decay, effectiveSampleSize(decay), "iterations");
  const ratio = dividedBy(plan.ratios.iteration_batch);
  return [...rows, {
    number: "advantage moments decay",
    tuned_at: shown(settings["objective.advantage-decay"]),
    this_run: shown(plan.hyperparameters.advantage_decay),
    rule: ruleOf("advantage-moments", rules, `iterations ${ratio} (iteration batch), at least 1`),
    regime: regimeOf("advantage-moments", rules, "iteration batch"),
  }];
}

function proximalRow(settings, plan, rules, regime) {
  const isPeriodic = settings["proximal.policy"] === "periodic";
  const [name, age, number] = isPeriodic
    ? ["proximal-copy", "mean age", "proximal copy every"]
    : ["proximal-ewma", "center of mass", "proximal EWMA decay"];
  const shown = isPeriodic ? copyWords : (decay) => decayWords(decay, centerOfMass(decay), age);
  const ratio = dividedBy(plan.ratios.env_steps_per_gradient_step);
  return {
    number,
    tuned_at: shown(settings[isPeriodic ? "proximal.copy-every" : "proximal.ewma-decay"]),
    this_run: shown(plan.hyperparameters[isPeriodic ? "proximal_copy_every" : "proximal_decay"]),
    rule: ruleOf(name, rules, `${age} ${ratio} (env steps per gradient step)`),
    regime: regimeOf(name, rules, regime),
  };
}

function phaseRows(settings, plan, rules) {
  const [phase, limit, ratio] = [plan.phase, plan.minibatch_limit, plan.ratios.iteration_batch];
  const tunedMinibatch = settings["phase.auxiliary-minibatch"];
  const isHeld = limit !== null && ratio > limit.ratio;
  const auxiliary = regimeOf("auxiliary-phase", rules, isHeld ? "minibatch limit" : "iteration batch");
  const grown = ratioText(limit === null ? ratio : Math.min(ratio, limit.ratio));
  const share = phase.auxiliary_minibatch / tunedMinibatch;
  return [
    {
      number: "iterations per phase",
      tuned_at: counted(settings["phase.policy-iterations"]),
      this_run: counted(phase.policy_iterations),
      rule: ruleOf("phase-length", rules, `${dividedBy(ratio)} (iteration batch), at least 1`),
      regime: regimeOf("phase-length", rules, "iteration batch"),
    },
    {
      number: "auxiliary minibatch",
      tuned_at: counted(tunedMinibatch),
      this_run: counted(phase.auxiliary_minibatch),
      rule: ruleOf("auxiliary-phase", rules, `× ${grown} (iteration batch), at least a quarter`),
      regime: auxiliary,
    },
    {
      number: "auxiliary learning rate",
      tuned_at: general(settings["phase.auxiliary-learning-rate"], 6),
      this_run: general(phase.auxiliary_learning_rate, 6),
      rule: ruleOf("auxiliary-phase", rules, learningRateRule(share, "auxiliary minibatch", "adam", rules)),
      regime: auxiliary,
    },
  ];
}

const ruleOf = (name, rules, sentence) => (rules.names.has(name) ? sentence : `kept (--rescale without ${name})`);
const regimeOf = (name, rules, regime) => (rules.names.has(name) ? regime : "kept");
const held = (row) => (row.regime === "minibatch limit" ? "; at the minibatch limit" : "");
const decayWords = (decay, meaning, unit) => `${general(decay, 6)} (${unit} ${numberText(meaning, 4)})`;

function learningRateRule(ratio, batch, optimizer, rules) {
  const isRoot = (rules.form ?? LEARNING_RATE_RULE[optimizer]) === "square-root";
  const factor = isRoot ? rootText(ratio) : ratioText(ratio);
  const asked = rules.form === null ? "" : `, ${rules.form} rule requested`;
  return `× ${factor} (${batch})${asked}`;
}

function ratioText(ratio) {
  const inverse = rounded(1 / ratio);
  return inverse > 1 && Math.abs(inverse * ratio - 1) < 1e-9 ? `1/${counted(inverse)}` : numberText(ratio, 4);
}

function rootText(ratio) {
  const text = ratioText(ratio);
  return text.includes("/") ? `√(${text})` : `√${text}`;
}

function dividedBy(ratio) {
  const text = ratioText(ratio);
  return text.startsWith("1/") ? `× ${text.slice(2)}` : `÷ ${text}`;
}

function copyWords(every) {
  return `${counted(every)} gradient step${plural(every)} (mean age ${numberText(meanCopyAge(every), 4)})`;
}

function whileItChanges(settings) {
  const isKept = hasController(settings) && settings["controller.compensate"] !== "all";
  return isKept ? "; kept while the batch changes" : "";
}

// dial/table.py: broken_preconditions, and plan_warnings of the configs

function warningsOf(settings, plan) {
  const rules = rescaleRules(settings.rescale);
  const areOne = Object.values(plan.ratios).every((ratio) => ratio === 1);
  const rescales = rules.names.size > 0 && !areOne;
  const [epochs, until, total] = [
    settings["update.epochs"], settings["optimizer.anneal-until"], settings["total-env-steps"],
  ];
  const [steps, tunedSteps] = [settings["num-steps"], plan.tuned_at.num_steps];
  const reasons = [
    [rescales && epochs > 1, `The rule assumes one policy epoch; update.epochs = ${epochs} makes it approximate.`],
    [
      steps !== tunedSteps,
      `num-steps = ${steps} instead of the tuned ${tunedSteps} also changes how far returns look before they bootstrap; ` +
        "changing num-envs does not.",
    ],
    [
      until !== null && until < total,
      `The learning rate reaches 0 at optimizer.anneal-until = ${until}, before total-env-steps = ${total}.`,
    ],
  ];
  if (hasPolicy(settings)) reasons.push(...policyReasons(settings, plan, rescales));
  if (hasPhases(settings)) reasons.push(phaseReason(settings, plan, rules));
  return reasons.filter(([isBroken]) => isBroken).map(([, sentence]) => sentence);
}

function policyReasons(settings, plan, rescales) {
  const numbers = plan.hyperparameters;
  const normalization = settings["objective.advantage-normalization"];
  const target = settings["update.target-kl"];
  const center = centerOfMass(numbers.proximal_decay);
  const age = meanCopyAge(numbers.proximal_copy_every);
  const isOneSample = settings["num-envs"] * settings["num-steps"] === 1 && numbers.advantage_decay === 0;
  return [
    [
      rescales && normalization === "minibatch",
      "objective.advantage-normalization = minibatch depends on the minibatch in a way that no rule corrects; iteration " +
        "does not.",
    ],
    [
      rescales && target !== null,
      `update.target-kl = ${target === null ? "" : plain(target)} ends iterations early, by an amount that depends on the ` +
        "batch.",
    ],
    [
      settings["proximal.policy"] === "ewma" && Number(center.toFixed(9)) < 1,
      `The proximal EWMA's center of mass is ${general(center, 3)} gradient steps: below 1 it hardly holds the update back.`,
    ],
    [
      settings["proximal.policy"] === "periodic" && age < 1,
      `The proximal copy is ${general(age, 3)} gradient steps old on average: below 1 it hardly holds the update back.`,
    ],
    [
      isOneSample && normalization === "iteration",
      "An iteration of one sample has a normalized advantage of 0: objective.advantage-decay above 0 compares it with " +
        "earlier ones.",
    ],
  ];
}

function phaseReason(settings, plan, rules) {
  const iterations = settings["phase.policy-iterations"] / plan.ratios.iteration_batch;
  const here = plan.phase.policy_iterations;
  const isClose = Math.abs(iterations - here) <= 1e-9 * Math.max(Math.abs(iterations), here);
  return [
    rules.names.has("phase-length") && !isClose,
    `A phase would be ${numberText(iterations, 4)} iterations; ${counted(here)} is the nearest possible.`,
  ];
}
