// The page of the dial. Its whole state is a preset and what differs from it, kept in the address after #.

const OF_PROXIMAL = { "proximal-ewma": "ewma", "proximal-copy": "periodic" };
const MINIBATCH_CHOICES = ["auto", "scaled", "keep", "noise-scale"];
const LARGEST_ON_SLIDER = 256; // times the number tuned at
const STOPS_PER_OCTAVE = 4;
const STUDIED = "minatar-ppo-ewma"; // what the page opens with, unless there are presets of one's own
const OPENING_SHARE = 1 / 16; // of the tuned environments: as tuned, there would be little to see

const byId = (id) => document.getElementById(id);
const presets = JSON.parse(byId("presets").textContent);
const words = JSON.parse(byId("words").textContent); // dial_data.py
const controls = [...document.querySelectorAll("[data-setting]")];
const state = { preset: presets[0], changes: {} };
let stops = [];

const settingsOf = () => ({ ...state.preset.settings, ...state.changes });

function create(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// Words and numbers

/** A whole number in full, another with six significant digits. */
function numberText(value) {
  return value.toLocaleString("en-US", Number.isInteger(value) ? {} : { maximumSignificantDigits: 6 });
}

/** A ratio as `anybatch plan` writes it, after the sign before it: × 4, √(1/256), or × 256 for ÷ 1/256. */
function ratioText(sign, ratio) {
  const inverse = Math.round(1 / ratio);
  if (inverse <= 1 || Math.abs(inverse * ratio - 1) >= 1e-9) return sign + numberText(ratio);
  const part = numberText(inverse);
  return { "√": `√(1/${part})`, "÷ ": `× ${part}` }[sign] ?? `${sign}1/${part}`;
}

/** A sentence of dial_data.py with its numbers. */
function fill(sentence, values = {}) {
  const text = (value) => (typeof value === "number" ? numberText(value) : String(value));
  return sentence
    .replace(/(√|÷ |)\{ratio\}/g, (_, sign) => ratioText(sign, values.ratio))
    .replace(/\{(\w+)\}/g, (_, name) => text(values[name]));
}

// State and address

function change(setting, value) {
  if (Object.is(value, state.preset.settings[setting])) delete state.changes[setting];
  else state.changes[setting] = value;
  show();
}

function choose(name, changes = {}) {
  state.preset = presets.find((preset) => preset.name === name) ?? presets[0];
  state.changes = {};
  for (const [setting, value] of Object.entries(changes)) {
    if (!Object.is(value, state.preset.settings[setting])) state.changes[setting] = value;
  }
  stops = stopsAround(state.preset.settings["tuned-at.num-envs"]);
  byId("envs-slider").max = stops.length - 1;
  show();
}

/** The value of a setting as it was typed: a number where the preset has one. */
function read(setting, text) {
  if (setting === "minibatch") return MINIBATCH_CHOICES.includes(text) ? text : Number(text);
  const isNumber = typeof state.preset.settings[setting] === "number";
  return isNumber ? (text.trim() === "" ? NaN : Number(text)) : text;
}

function openAway() {
  const isOwn = presets[0].name.endsWith(".toml");
  const { name, settings } = presets.find((preset) => !isOwn && preset.name === STUDIED) ?? presets[0];
  choose(name, { "num-envs": Math.max(1, Math.round(OPENING_SHARE * settings["tuned-at.num-envs"])) });
}

function readAddress() {
  if (location.hash.length <= 1) return openAway();
  const parts = new URLSearchParams(location.hash.slice(1));
  state.preset = presets.find((preset) => preset.name === parts.get("preset")) ?? presets[0];
  const changes = {};
  for (const { tagName, dataset: { setting }, options } of controls) {
    const text = parts.get(setting);
    if (text === null || !(setting in state.preset.settings)) continue;
    const isChoice = tagName === "SELECT" && setting !== "minibatch";
    if (!isChoice || [...options].some(({ value }) => value === text)) changes[setting] = read(setting, text);
  }
  choose(state.preset.name, changes);
}

function writeAddress() {
  const parts = new URLSearchParams({ preset: state.preset.name });
  for (const [setting, value] of Object.entries(state.changes)) parts.set(setting, value ?? "none");
  history.replaceState(null, "", `#${parts}`);
}

function commandOf() {
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const changed = Object.entries(state.changes).flatMap(([setting, value]) => [`--${setting}`, String(value ?? "none")]);
  return ["anybatch", "train", "--preset", state.preset.name, ...changed].map(quoted).join(" ");
}

// The slider: whole numbers of environments, four to each doubling, and the number tuned at.

function stopsAround(tuned) {
  const largest = Math.min(MOST_ENVS, LARGEST_ON_SLIDER * Math.max(tuned, 8));
  const found = new Set([tuned]);
  for (let place = 0; ; place += 1) {
    const octave = 2 ** Math.floor(place / STOPS_PER_OCTAVE);
    const envs = Math.round(octave * (1 + (place % STOPS_PER_OCTAVE) / STOPS_PER_OCTAVE));
    if (envs > largest) break;
    found.add(envs);
  }
  return [...found].sort((one, other) => one - other);
}

function nearestStop(envs) {
  const distance = (stop) => Math.abs(Math.log(stop / envs));
  return stops.reduce((best, stop, place) => (distance(stop) < distance(stops[best]) ? place : best), 0);
}

function showSlider(settings) {
  const envs = settings["num-envs"];
  const tuned = settings["tuned-at.num-envs"];
  const slider = byId("envs-slider");
  if (envs >= 1) slider.value = nearestStop(envs);
  slider.setAttribute("aria-valuetext", fill(words.page.slider, { envs }));
  const mark = byId("tuned-mark");
  const place = tuned >= 1 ? (100 * nearestStop(tuned)) / (stops.length - 1) : 0;
  mark.style.left = `${place}%`;
  mark.className = place < 50 ? "first" : "last"; // the side of the arrow with room for the words
  const where = fill(words.page.mark, { tuned });
  mark.textContent = place < 50 ? `▲ ${where}` : `${where} ▲`;
}

// Controls

function visibleRules(settings) {
  return RESCALE_RULES.filter((rule) => {
    if (rule in OF_PROXIMAL) return settings["proximal.policy"] === OF_PROXIMAL[rule];
    if (rule === "advantage-moments") return settings["objective.advantage-normalization"] === "iteration";
    if (rule === "adam-betas") return settings["optimizer.name"] !== "sgd";
    return rule === "learning-rate" || hasPhases(settings);
  });
}

/** The value of --rescale for the boxes that are checked, among those that concern this run. */
function rescaleText(settings) {
  const visible = visibleRules(settings);
  const checked = visible.filter((rule) => byId(`rule-${rule}`).checked);
  const form = byId("learning-rate-form").value;
  if (checked.length === 0) return "none";
  const isAll = visible.every((rule) => rule === "adam-betas" || checked.includes(rule));
  const names = isAll ? ["all", ...checked.filter((rule) => rule === "adam-betas")] : checked;
  if (!form || !checked.includes("learning-rate")) return names.join(",");
  const asked = `learning-rate=${form}`;
  return isAll ? [...names, asked].join(",") : names.map((name) => (name === "learning-rate" ? asked : name)).join(",");
}

function showRules(settings) {
  const rules = rescaleRules(settings.rescale);
  const visible = visibleRules(settings);
  for (const rule of RESCALE_RULES) {
    byId(`rule-${rule}`).checked = rules.names.has(rule);
    byId(`rule-${rule}`).closest("label").hidden = !visible.includes(rule);
  }
  const form = byId("learning-rate-form");
  form.value = rules.form ?? "";
  form.disabled = !rules.names.has("learning-rate");
}

function showLimit(settings, limit) {
  const kind = typeof limit === "number" ? "samples" : limit;
  byId("limit-kind").value = kind;
  const samples = byId("limit-samples");
  samples.closest(".field").hidden = kind !== "samples";
  if (kind === "samples" && document.activeElement !== samples) samples.value = limit;
}

function showControls(settings) {
  byId("preset").value = state.preset.name;
  byId("preset-words").textContent = fill(words.page.preset, state.preset);
  for (const control of controls) {
    const setting = control.dataset.setting;
    const value = settings[setting];
    const field = control.closest(".field");
    if (field) field.hidden = value === undefined || !concerns(setting, settings);
    if (value === undefined || setting === "minibatch" || setting === "rescale") continue;
    if (Number.isNaN(value)) continue; // not a number: keep it to be corrected
    if (control.type !== "number" || Number(control.value) !== value || control.value === "") control.value = value;
  }
  for (const id of ["num-steps", "tuned-at-num-steps"]) byId(id).disabled = hasController(settings);
  showSlider(settings);
  showRules(settings);
  showLimit(settings, settings.minibatch);
}

/** Whether a setting has a say in this run. */
function concerns(setting, settings) {
  if (setting === "proximal.ewma-decay") return settings["proximal.policy"] === "ewma";
  if (setting === "proximal.copy-every") return settings["proximal.policy"] === "periodic";
  if (setting === "objective.advantage-decay") {
    return settings["objective.advantage-normalization"] === "iteration" || settings[setting] !== 0;
  }
  if (setting.startsWith("optimizer.beta")) return settings["optimizer.name"] !== "sgd";
  return true;
}

// What follows

function shareOf(ratio) {
  if (ratio === 1) return words.page["the tuned batch"];
  const isPart = ratioText("", ratio).startsWith("1/");
  return fill(words.page[isPart ? "part" : "times"], { ratio });
}

/** A number, with what it means below it: 0.888889, and center of mass 8. */
function valueElement(name, value, meaning) {
  const element = create(name, {}, numberText(value));
  if (meaning) element.append(create("span", { className: "meaning", textContent: ` ${meaning}` }));
  return element;
}

function ruleText(settings, { name, state, numbers }) {
  if (state === "kept") return words.page.kept;
  const isInitial = state !== "batch" && hasController(settings) && settings["controller.compensate"] !== "all";
  const additions = [state === "limit" && words.page["at limit"], isInitial && words.page["while changing"]];
  return fill(words.rows[name].rule, numbers) + additions.filter(Boolean).join("");
}

function rowElement(settings, row) {
  const { number, meaning, why } = words.rows[row.name];
  const [, tunedAt, thisRun, rule] = words.columns;
  const cell = (label, child) => {
    const element = create("td", {}, child);
    element.dataset.label = label;
    return element;
  };
  const meaningOf = (value) => meaning && fill(meaning, { meaning: row.meaning?.(value) });
  const explained = create("div", {}, create("span", { textContent: ruleText(settings, row) }));
  if (why && row.state !== "kept") explained.append(create("span", { className: "why", textContent: why }));
  return create(
    "tr",
    {},
    create("th", { textContent: number, scope: "row" }),
    cell(tunedAt, valueElement("span", row.tuned, meaningOf(row.tuned))),
    cell(thisRun, valueElement(numberText(row.here) === numberText(row.tuned) ? "span" : "strong", row.here, meaningOf(row.here))),
    cell(rule, explained),
  );
}

function showPlan(settings, plan) {
  byId("batches").replaceChildren(...batchRows(plan).map((row) => rowElement(settings, row)));
  byId("numbers").replaceChildren(...rowsOf(settings, plan).map((row) => rowElement(settings, row)));
  byId("lines").replaceChildren(
    ...linesOf(settings, plan).flatMap(({ name, numbers }) => {
      const [label, sentence] = words.lines[name];
      return [create("dt", { textContent: label }), create("dd", { textContent: fill(sentence, numbers) })];
    }),
  );
  byId("notes").replaceChildren(
    ...notesOf(settings, plan).map(({ name, numbers }) => create("li", { textContent: fill(words.notes[name], numbers) })),
  );
  byId("notes").hidden = byId("notes").children.length === 0;
  const [rate, tuned] = [plan.hyperparameters.learning_rate, settings["optimizer.learning-rate"]];
  const sentence = words.page[rate === tuned ? "summary, same rate" : "summary"];
  const share = shareOf(plan.ratios.iteration_batch);
  byId("summary").textContent = fill(sentence, { envs: settings["num-envs"], share, rate, tuned });
  byId("command").textContent = commandOf();
  showRecords(plan.ratios.iteration_batch);
}

function showRecords(ratio) {
  for (const group of document.querySelectorAll(".record")) {
    const figures = [...group.querySelectorAll("[data-ratio]")];
    const distance = (figure) => Math.abs(Math.log(Number(figure.dataset.ratio) / ratio));
    const shown = figures.reduce((best, figure) => (distance(figure) < distance(best) ? figure : best));
    for (const figure of figures) figure.hidden = figure !== shown;
  }
  const nearest = byId("nearest");
  if (nearest) nearest.textContent = fill(words.page.nearest, { share: shareOf(ratio) });
}

function show() {
  const settings = settingsOf();
  let refusal = "";
  try {
    showControls(settings);
    showPlan(settings, planOf(settings));
    writeAddress();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    refusal = `${fill(words.refusals[error.name], error.values)}.`;
    byId("summary").textContent = "";
  }
  byId("refusal").textContent = refusal;
  byId("refusal").hidden = refusal === "";
  byId("results").hidden = refusal !== "";
}

async function copy(button, text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = words.page.copied;
  } catch {
    getSelection().selectAllChildren(shown); // then the keyboard can copy it
    button.textContent = words.page.selected;
  }
  setTimeout(() => { button.textContent = button.dataset.words; }, 2000);
}

function listen() {
  byId("preset").addEventListener("change", (event) => choose(event.target.value));
  byId("envs-slider").addEventListener("input", (event) => change("num-envs", stops[event.target.value]));
  byId("as-tuned").addEventListener("click", () => choose(state.preset.name));
  for (const control of controls.filter(({ dataset }) => !["minibatch", "rescale"].includes(dataset.setting))) {
    control.addEventListener("input", () => change(control.dataset.setting, read(control.dataset.setting, control.value)));
  }
  for (const control of byId("rules").querySelectorAll("input, select")) {
    control.addEventListener("change", () => change("rescale", rescaleText(settingsOf())));
  }
  byId("limit-kind").addEventListener("change", (event) => {
    const tuned = tunedBatch(settingsOf()).minibatch;
    const choice = event.target.value;
    change("minibatch", choice === "samples" ? Math.ceil(tuned) : choice);
  });
  byId("limit-samples").addEventListener("input", (event) => change("minibatch", Number(event.target.value)));
  byId("copy-command").addEventListener("click", ({ target }) => copy(target, commandOf(), byId("command")));
  byId("copy-link").addEventListener("click", ({ target }) => copy(target, location.href, byId("command")));
  byId("dial").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", readAddress);
}

listen();
readAddress();
