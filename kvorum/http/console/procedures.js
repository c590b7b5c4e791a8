// Procedures: what needs attention first, the list, and one with all about it.

import { ask, forbidden, gone, known, query, Refusal, rightsTo, sees, session, wordsOf } from "./api.js";
import { gantt, widthOf } from "./charts.js";
import { badge, card, code, duration, el, empty, figure, finely, linkTo, matches, moment, pairs, plural, pretty, tableOf, tiles, withoutEmpty } from "./dom.js";

export const ENDED = new Set(["SUCCESS", "FAILED", "ROLLED_BACK", "BYPASSED"]);
const STATES = ["RUNNABLE", "WAITING", "SUCCESS", "FAILED", "ROLLED_BACK", "BYPASSED"];
const KINDS = [
  ["parked", "Parked", "their code is missing", "bad"], ["stuck", "Stuck", "longer in a step than it may take", "bad"],
  ["retrying", "Retrying", "after an error", "warn"], ["rolling_back", "Undoing", "they undo what they did", ""],
  ["running", "Running", "a step is under way", ""], ["queued", "Queued", "for a turn, a worker, a lock", ""], ["paused", "Paused", "by an operator", "warn"],
  ["children", "Children", "they wait for children", ""], ["waiting", "Waiting", "for an event or a time", ""],
];
const PAGE = 100; // of the API
const CHILDREN_MAX = 30; // of the newest round, each a request
const AUDIT_MAX = 20; // actions that a procedure's page shows
const EVENTS_MAX = 50; // that a procedure has emitted: the last ones
const BARS_MAX = 400;
const ROWS_MAX = 40; // of a timeline

export const shownState = (state) =>
  badge(state, { SUCCESS: "good", FAILED: "bad", ROLLED_BACK: "bad", BYPASSED: "warn" }[state]);
const lockText = (lock) => `${lock.mode} ${lock.resource}`;

/** An error with the place in users' code that raised it. */
function raised(error) {
  const where = error.file ? `${error.type}: ${error.message}\nstep ${error.step}, ${error.file}:${error.line}` : error.message;
  return `${error.code}: ${where}${error.traceback ? `\n\n${error.traceback}` : ""}`;
}

/** What keeps one that has not ended, if it is not as usual. */
function keeps(one) {
  if (one.parked) return el("span", { class: "bad" }, `parked: ${one.parked}`);
  if (one.paused) return el("span", { class: "warn" }, `paused${one.paused.kind === "procedure" ? "" : ` with its ${one.paused.kind} ${one.paused.name}`} by ${one.paused.by}: ${one.paused.note}`);
  if (one.stuck) return el("span", { class: "bad" }, `stuck in ${one.stuck.step} for ${duration(one.stuck.running_ms)}`);
  if (one.retrying) return el("span", { class: "warn" }, `retrying: ${one.retrying.code}: ${one.retrying.message}`);
  if (one.error) return `${one.error.code}: ${one.error.message}`;
  if (one.progress) return `${Math.round(one.progress.part * 100)} % ${one.progress.text}`;
  return one.waits || "";
}

const procedureRow = (one) => [
  linkTo(one.id), one.name, shownState(one.state), one.step || "", one.owner || "",
  duration(one.age_ms), one.parent ? linkTo(one.parent) : "", one.locks.map(lockText).join(", "), keeps(one),
];
const PROCEDURE_COLUMNS = [
  ["id", "tight"], ["name", ""], ["state", "tight"], ["step", ""], ["owner", ""], ["age", "tight"],
  ["parent", "tight"], ["locks", ""], ["what keeps it", ""],
];
export const procedureTable = (items, none) => tableOf(...withoutEmpty(PROCEDURE_COLUMNS, items.map(procedureRow)), none);

// ------------------------------------------------------------------------------------- the list
export function proceduresPage(told) {
  const kind = told.get("kind") || "";
  const pages = []; // where earlier pages began
  let token = "", found = "";
  const again = () => { pages.length = 0; token = ""; session.refresh(); };
  const state = el("select", { id: "state", "aria-label": "state", onchange: again }, el("option", { value: "" }, "any state"), STATES.map((s) => el("option", { value: s, selected: s === told.get("state") }, s)));
  const name = el("input", { id: "name", placeholder: "type", "aria-label": "type", list: "types", value: told.get("name") || "", onchange: again });
  const owner = el("input", { id: "owner", placeholder: "owner", "aria-label": "owner", size: 10, onchange: again });
  const error = el("input", { id: "error", placeholder: "error", "aria-label": "beginning of the error", size: 12, onchange: again });
  const where = el("input", { id: "where", placeholder: "attributes: customer=ada, amount>=100", "aria-label": "conditions on attributes", size: 34, onchange: again });
  const text = el("input", { id: "text", type: "search", placeholder: "any text in the row", "aria-label": "text", size: 16, oninput: () => session.refresh() });
  const id = el("input", { id: "id", placeholder: "go to id", "aria-label": "id", inputmode: "numeric", size: 12 });
  const types = el("datalist", { id: "types" });
  const newer = el("button", { id: "newer", type: "button", disabled: true, onclick: () => { token = pages.pop() || ""; session.refresh(); } }, "Previous");
  const older = el("button", { id: "older", type: "button", disabled: true, onclick: () => { pages.push(token); token = found; session.refresh(); } }, "Next");
  const go = (event) => {
    event.preventDefault();
    if (/^\d+$/.test(id.value.trim())) location.hash = `#/procedures/${id.value.trim()}`;
    else session.refresh();
  };
  /** What is searched for, as /v1/search and /v1/bulk have it. */
  const filter = () => {
    const wanted = { state: state.value, type: name.value.trim(), owner: owner.value.trim(), error: error.value.trim() };
    const conditions = where.value.split(",").map((one) => one.trim()).filter((one) => one);
    return Object.fromEntries(Object.entries({ ...wanted, where: conditions }).filter(([, value]) => value.length));
  };
  const panel = el("div", {});
  const bulk = sees("locks") && el("details", { class: "add", id: "bulk" }, el("summary", {}, "Act on all that fit"),
    el("p", { class: "faint" }, "On every procedure that the fields above describe, on this page or not; without any, on all that have not ended."),
    el("div", { class: "bar" }, ["abort", "retry", "bypass", "pause", "resume"].map((what) => el("button", { type: "button", id: `bulk-${what}`, onclick: () => {
      const wanted = filter();
      const more = { what, filter: Object.keys(wanted).length ? wanted : { state: ["RUNNABLE", "WAITING"] } };
      panel.replaceChildren(el("p", {}, "All with ", code(JSON.stringify(more.filter))), actionPanel(what, "v1/bulk", more, () => panel.replaceChildren()));
    } }, `${(ACTIONS[what] || BULK[what]).label} …`))), panel);
  return {
    title: "Procedures",
    fixed: [el("form", { onsubmit: go, class: "bar" }, state, name, types, owner, error, where, text, id, el("button", {}, "Go"), el("span", { class: "pager" }, newer, older)), bulk],
    live: async () => {
      const [listed, census] = await Promise.all([
        ask(`v1/search?${new URLSearchParams([...Object.entries(filter()).flatMap(([key, value]) => [value].flat().map((one) => [key, one])), ["limit", PAGE], ...(token ? [["token", token]] : [])])}`), ask("v1/census"),
      ]);
      const items = listed.items;
      found = listed.token;
      older.disabled = !found;
      newer.disabled = !pages.length;
      if (types.childElementCount !== census.types.length) types.replaceChildren(...census.types.map((one) => el("option", { value: one.name })));
      const words = text.value.trim();
      const fit = items.filter((one) => matches(words, one));
      return [
        Object.keys(census.kinds).length > 0 && tiles(KINDS.map(([key, label, about, level]) => ({
          label, value: figure(census.kinds[key]), title: about, level: census.kinds[key] ? level : "", current: key === kind, href: `#/procedures${key === kind ? "" : `?kind=${key}`}`,
        })), "many"),
        lookFirst(census, kind),
        census.types.length > 1 && el("details", { class: "types" }, el("summary", {}, `${plural(census.types.length, "type")} under way`),
          tableOf([["type", ""], ["under way", "number"], ["in trouble", "number"]], census.types.map((one) => [el("a", { href: `#/procedures?name=${encodeURIComponent(one.name)}` }, one.name), figure(one.live), one.trouble ? el("span", { class: "warn" }, figure(one.trouble)) : ""]), "")),
        el("h2", {}, pages.length ? `Page ${pages.length + 1}` : "What has not ended, then what has"),
        el("div", { id: "list" }, procedureTable(fit, items.length ? "None of them fits the text." : empty("There are none", "A program starts one with ", code("db.submit(…)"), " or ", code("kvorum proc submit"), "; here it shows at once."))),
        found && el("p", { class: "faint" }, `${PAGE} on a page: narrow the list by state, type, owner, error or attributes, or look at the next page.`),
      ];
    },
  };
}

/** Trouble first; without any, what waits for longest. */
function lookFirst(census, kind) {
  const trouble = new Set(KINDS.slice(0, 4).map(([key]) => key));
  const rows = census.first.filter((one) => (kind ? one.kind === kind : trouble.has(one.kind)));
  const label = Object.fromEntries(KINDS.map(([key, title]) => [key, title.toLowerCase()]));
  const level = Object.fromEntries(KINDS.map(([key, , , of]) => [key, of]));
  if (!rows.length && !kind) return null;
  const count = kind && census.kinds[kind];
  return [
    el("h2", {}, kind ? `${KINDS.find(([key]) => key === kind)?.[1] || kind}${count > rows.length ? `: the oldest ${rows.length} of ${figure(count)}` : ""}` : "Look at these first"),
    tableOf(
      [["id", "tight"], ["type", ""], ["", "tight"], ["step", ""], ["owner", ""], ["since", "tight"], ["why", ""]],
      rows.map((one) => [linkTo(one.id), one.name, badge(label[one.kind], level[one.kind]), one.step, one.owner, duration(census.at_ms - one.since_ms), one.why]),
      empty("None", "No procedure is of that kind now."),
    ),
  ];
}

// ------------------------------------------------------------------------------------- one of them
/** The children of the newest round (the API tells rounds as {first, count}). */
async function childrenOf(one) {
  const rounds = one.children || [];
  if (!rounds.length) return { children: [], childrenMore: 0 };
  const all = rounds.reduce((sum, round) => sum + round.count, 0);
  const { first, count } = rounds[rounds.length - 1];
  const ids = Array.from({ length: Math.min(count, CHILDREN_MAX) }, (_, i) => String(BigInt(first) + BigInt(i)));
  const found = await Promise.all(ids.map((id) => ask(`v1/procedures/${id}`).catch(gone)));
  const children = found.filter((child) => child !== null);
  return { children, childrenMore: all - children.length };
}

/** What was done to it last. One answer has looked at so many actions at most. */
async function auditOf(id) {
  const items = [];
  for (let before = ""; before !== undefined && items.length < AUDIT_MAX;) {
    const page = await ask(`v1/audit${query({ id, limit: AUDIT_MAX - items.length, before })}`);
    items.push(...page.items);
    before = page.before;
  }
  return items;
}

/** What it has emitted: each look asks for what is new. */
function emittedBy(id) {
  const kept = [];
  let after = 0;
  return async () => {
    const { items } = await ask(`v1/procedures/${id}/events${query({ after, limit: 1000 })}`);
    if (items.length) after = items[items.length - 1].position;
    kept.push(...items);
    kept.splice(0, Math.max(0, kept.length - EVENTS_MAX));
    return kept;
  };
}

/** As it was then: what its record said. */
function pastPage(id, at) {
  return {
    title: `Procedure ${id}`,
    fixed: el("div", {}, el("p", { class: "crumb" }, el("a", { href: `#/procedures/${id}` }, "As it is now"))),
    every: 3600000, // it does not change
    live: async () => {
      const one = await ask(`v1/procedures/${id}${query({ at })}`);
      session.titled(`Procedure ${id}: ${one.name}`);
      return [el("p", { class: "sentence", id: "past" }, `As it was at ${at.replace("T", " ")}.`), procedureFacts(one), procedureData(one)];
    },
  };
}

export function procedurePage(id, past) {
  if (past) return pastPage(id, past);
  const emitted = emittedBy(id);
  const panel = el("div", {});
  const why = el("p", { class: "faint", id: "why", hidden: true });
  let asked = false; // whether this user may do something to it
  let operates = false;
  const show = (what) => () => panel.replaceChildren(actionPanel(what, `v1/procedures/${id}/${what}`, {}, () => panel.replaceChildren()));
  const buttons = Object.keys(ACTIONS).filter((what) => what !== "steal").map((what) => el("button", { id: what, disabled: true, onclick: show(what) }, ACTIONS[what].label));
  const hold = el("button", { id: "pause", disabled: true, onclick: () => {
    if (hold.dataset.paused) resume("procedure", id).then(session.refresh, (error) => panel.replaceChildren(el("p", { class: "bad" }, wordsOf(error))));
    else panel.replaceChildren(pausePanel("procedure", id, () => panel.replaceChildren()));
  } }, "Pause");
  buttons.push(hold);
  const talk = ["signal", "update", "query"].map((what) => el("button", { id: what, class: "talk", disabled: true, onclick: () => panel.replaceChildren(talkPanel(what, id, () => panel.replaceChildren())) }, TALKS[what].label));
  return {
    title: `Procedure ${id}`,
    fixed: el("div", {}, el("p", { class: "crumb" }, el("a", { href: "#/procedures" }, "All procedures")), el("div", { class: "actions" }, buttons, talk), why, panel),
    live: async () => {
      const one = await ask(`v1/procedures/${id}`);
      const [explain, audit, family, events] = await Promise.all([
        ask(`v1/procedures/${id}/explain`).catch(gone), auditOf(id).catch(forbidden), childrenOf(one), emitted().catch(gone),
      ]);
      session.titled(`Procedure ${id}: ${one.name}`);
      const ended = ENDED.has(one.state);
      if (!asked) {
        const may = await rightsTo(one.name);
        operates = may.operates;
        asked = true;
        const lacks = [!may.operates && "operate", !may.submits && "submit"].filter((right) => right);
        why.textContent = lacks.length ? `You may look at it; to do more you need ${lacks.join(" and ")} on the procedure type ${one.name} (kvorum grant give).` : "";
        why.hidden = !lacks.length;
        for (const button of buttons) button.hidden = !may.operates;
        for (const button of talk) button.hidden = !may.submits && button.id !== "query";
      }
      for (const button of buttons) {
        const over = ended && !(ACTIONS[button.id] && ACTIONS[button.id].ended);
        button.disabled = over || !operates;
        button.title = over ? "It has ended." : "";
      }
      const paused = one.paused && one.paused.kind === "procedure";
      if (paused) hold.dataset.paused = "yes";
      else delete hold.dataset.paused;
      hold.textContent = paused ? "Resume" : "Pause";
      for (const button of talk) {
        button.disabled = ended;
        button.title = ended ? "It has ended: nobody hears." : "";
      }
      return procedureDetail({ one, explain, audit: audit || [], events: events || [], ...family });
    },
  };
}

const OUTCOME = { next: "done", done: "done", again: "again", retry: "retry", failed: "fail", fail: "fail", error: "fail", rollback: "fail" };
const kindOf = (outcome) => OUTCOME[outcome.split(":")[0]] || "done";

/** Steps, what it waited for between them, and children, over time. */
function timeline({ one, children, childrenMore }) {
  const now = one.created_ms + one.age_ms; // the node's clock, not ours
  const ended = ENDED.has(one.state);
  const steps = (one.steps || []).slice(-BARS_MAX);
  const rows = [];
  let at = one.created_ms;
  for (const step of steps) {
    const last = rows[rows.length - 1];
    const row = last && last.label === step.step ? last : { label: step.step, bars: [] };
    if (row !== last) rows.push(row);
    if (step.start_ms - at > 1) row.bars.push({ from: at, to: step.start_ms, kind: "wait", title: `waited ${duration(step.start_ms - at)}` });
    const kind = step.step.startsWith("undo:") ? "undo" : kindOf(step.outcome);
    row.bars.push({ from: step.start_ms, to: step.start_ms + step.took_ms, kind, title: `${step.step}, attempt ${step.attempt}: ${step.outcome} after ${duration(step.took_ms)}` });
    at = step.start_ms + step.took_ms;
  }
  if (!ended && one.step) {
    const kind = one.parked || one.stuck ? "fail" : one.retrying ? "retry" : one.state === "WAITING" ? "wait" : "now";
    const bar = { from: at, to: now, kind, title: `${one.step}: ${one.state === "WAITING" ? "waits" : "since"} ${duration(now - at)}` };
    const last = rows[rows.length - 1];
    if (last && last.label === one.step) last.bars.push(bar);
    else rows.push({ label: one.step, bars: [bar] });
  }
  const to = ended ? Math.max(at, one.updated_ms) : now;
  for (const child of children) {
    const until = ENDED.has(child.state) ? child.updated_ms : child.created_ms + child.age_ms;
    const kind = { SUCCESS: "child", FAILED: "fail", ROLLED_BACK: "fail" }[child.state] || "child open";
    rows.push({ label: `↳ ${child.name} ${child.id}`, kind: "child", bars: [{ from: child.created_ms, to: until, kind, title: `child ${child.id} (${child.name}) ${child.state}` }] });
  }
  if (!rows.length) return card("Timeline", el("div", { class: "empty" }, empty("Nothing has run yet", "Each step is drawn here as soon as it has begun.")));
  const cut = rows.slice(-ROWS_MAX);
  const lost = rows.length - cut.length;
  const first = Math.min(...cut.flatMap((row) => row.bars.map((bar) => bar.from)));
  return card(
    "Timeline",
    gantt({ rows: cut, from: first, to: Math.max(to, first + 1), width: widthOf(1), format: finely }),
    el("p", { class: "legend" }, [["done", "done"], ["retry", "retried"], ["fail", "failed"], ["undo", "undone"], ["wait", "waited"], ["child", "child"]].map(([kind, words]) => el("span", { class: `key ${kind}` }, words))),
    lost > 0 && el("p", { class: "faint" }, `${plural(lost, "earlier row")} are not drawn.`),
    childrenMore > 0 && el("p", { class: "faint" }, `and ${plural(childrenMore, "earlier child")}.`.replace("childs", "children")),
  );
}

const block = (title, text, open = true) => el("details", { class: "block", ...(open ? { open: true } : {}) }, el("summary", {}, title), el("pre", { tabindex: 0 }, text));

/** What its record says. */
const procedureFacts = (one) => [
  pairs([
    ["state", shownState(one.state)], ["step", one.step], ["attempt", one.attempt], ["owner", one.owner],
    ["parent", one.parent && linkTo(one.parent)], ["created", moment(one.created_ms)], ["age", duration(one.age_ms)],
    ["changed", moment(one.updated_ms)], ["goes on at", moment(one.due_ms)], ["queue", one.queue],
    ["priority", one.priority || ""], ["version", one.version], ["pool", one.pool], ["worker", one.worker],
    ["failed so far", one.retry && `${one.retry.failed} of ${one.retry.of || "any number of"} attempts`],
    ["what keeps it", !ENDED.has(one.state) && keeps(one)],
  ]),
  one.error && [el("h2", {}, "Error"), el("pre", { class: "bad", tabindex: 0 }, raised(one.error))],
  !one.error && one.retrying && [el("h2", {}, "Retries after"), el("pre", { tabindex: 0 }, raised(one.retrying))],
];
const procedureData = (one) => el("div", { class: "grid" },
  one.args !== undefined && one.args !== null && block("Arguments", pretty(one.args)),
  one.args_bytes && block("Arguments", `${figure(one.args_bytes)} bytes: too many to show; kvorum proc show ${one.id} has them`),
  one.ctx_state && Object.keys(one.ctx_state).length > 0 && block("State", pretty(one.ctx_state)),
  one.result !== undefined && block("Result", pretty(one.result)));

/** told: {one, explain, children, childrenMore, events, audit} */
function procedureDetail(told) {
  const one = told.one;
  const now = one.created_ms + one.age_ms;
  const waits = ((told.explain && told.explain.waits) || []).map((wait) => [
    wait.kind, wait.text, wait.since_ms ? duration(now - wait.since_ms) : "",
    wait.holder ? linkTo(wait.holder) : wait.holder_txn ? `transaction ${wait.holder_txn}` : "",
  ]);
  // What a step has stored is there when the next one begins, or a moment after it.
  const stored = (i) => (i + 1 < one.steps.length ? one.steps[i + 1].start_ms : Math.min(now, one.updated_ms + 1000));
  const steps = (one.steps || []).map((s, i) => [
    s.step, s.outcome, s.attempt,
    el("a", { href: `#/procedures/${one.id}?at=${new Date(stored(i)).toISOString()}`, title: "As it was then" }, moment(s.start_ms)), duration(s.took_ms),
  ]);
  const locks = one.locks.map((lock) => [lock.mode, lock.resource]);
  return [
    told.explain && el("p", { class: "sentence", id: "sentence" }, told.explain.sentence),
    one.progress && el("p", {}, el("progress", { max: 1, value: one.progress.part, "aria-label": "progress" }), ` ${Math.round(one.progress.part * 100)} % ${one.progress.text}`),
    procedureFacts(one),
    timeline(told),
    procedureData(one),
    waits.length > 0 && [el("h2", {}, "Waits"), tableOf([["kind", "tight"], ["what", ""], ["for", "tight"], ["who has it", "tight"]], waits, "")],
    told.events.length > 0 && [el("h2", {}, "Emitted"), tableOf([["position", "number"], ["when", "tight"], ["name", ""], ["value", ""]],
      [...told.events].reverse().map((one) => [one.position, moment(one.at_ms), one.name, code(JSON.stringify(one.value).slice(0, 500))]), "")],
    el("h2", {}, "Steps"),
    tableOf([["step", ""], ["outcome", ""], ["attempt", "number"], ["began", "tight"], ["took", "number"]], steps, "None has ended."),
    locks.length > 0 && [el("h2", {}, "Locks"), tableOf([["mode", "tight"], ["resource", ""]], locks, "")],
    told.children.length > 0 && [el("h2", {}, "Children"), procedureTable(told.children, "")],
    el("h2", {}, "What was done to it"),
    tableOf(
      [["when", "tight"], ["who", ""], ["what", "tight"], ["why", ""]],
      told.audit.map((a) => [moment(a.at_ms), a.actor, a.what, a.reason]), "Nothing.",
    ),
  ];
}

// ------------------------------------------------------------------------------------- actions
export const ACTIONS = {
  abort: { label: "Abort", about: "It fails and rolls back what it did.", options: [] },
  bypass: {
    label: "Bypass", about: "It ends where it stands: nothing is undone, its locks are free, its parent goes on.",
    options: [["override", "also while a step is under way"], ["recursive", "with everything below it"]],
  },
  retry: { label: "Retry", about: "It goes on at once.", options: [], step: true },
  reset: {
    label: "Reset", about: "It goes on from an earlier step, also after its end; what was done since is undone first.", step: true, ended: true,
    options: [["keep", "keep what was done since", { undo: "keep" }], ["end", "end its live children", { children: "end" }]],
  },
  fork: { label: "Fork", about: "A new procedure begins at one of its steps; this one stays as it is.", options: [], step: true, ended: true },
  steal: { label: "Steal", about: "The lock goes to who is next; late writes of its holder are refused.", options: [] },
};

const BULK = {
  pause: { label: "Pause", about: "No step of them begins any more; steps under way come to their end.", options: [] },
  resume: { label: "Resume", about: "Those that are paused go on.", options: [] },
};

/** Reason, options, a dry run, and only then the deed, with exactly what the dry run was told. */
export function actionPanel(what, path, more, close) {
  const action = ACTIONS[what] || BULK[what];
  const isBulk = path === "v1/bulk";
  let agreed = null; // the body of the last dry run that would change something
  const told = el("div", { id: "told", role: "status" });
  const reason = el("input", { id: "reason", size: 40, placeholder: "why (kept in the audit)", "aria-label": "reason" });
  const actor = known() ? null : el("input", { id: "actor", size: 16, placeholder: "your name", "aria-label": "your name", value: sessionStorage.getItem("actor") || "" });
  const step = action.step && el("input", { id: "step", size: 16, placeholder: action.ended ? "from this step" : "step (its own)", "aria-label": "step" });
  const options = action.options.map(([name, label, says]) => [says || { [name]: true }, el("input", { type: "checkbox", id: name }), label]);
  const act = el("button", { id: "act", class: "act", disabled: true, onclick: () => run(false) }, action.label);
  const dry = el("button", { id: "dry", onclick: () => run(true) }, "Dry run");
  const changed = () => {
    agreed = null;
    act.disabled = true;
  };

  async function run(isDry) {
    if (isDry) {
      changed();
      if (!reason.value.trim()) {
        told.replaceChildren(el("p", { class: "bad" }, "Say why: the audit keeps it."));
        reason.focus();
        return;
      }
      if (actor) sessionStorage.setItem("actor", actor.value.trim());
      agreed = { ...more, reason: reason.value.trim(), key: fresh() };
      if (actor && actor.value.trim()) agreed.actor = actor.value.trim();
      const said = step && step.value.trim() ? { step: step.value.trim() } : {};
      for (const [says, box] of options) if (box.checked) Object.assign(said, says);
      if (!isBulk) Object.assign(agreed, said);
      else if (Object.keys(said).length) agreed.options = said;
    }
    const body = agreed;
    act.disabled = dry.disabled = true;
    try {
      const { key, ...dryBody } = body; // a dry run does not use up the key under which it is done once
      const answer = await ask(path, isDry ? { ...dryBody, dry_run: true } : body);
      told.replaceChildren(isBulk ? bulkTold(answer, isDry) : surgeryTold(answer));
      act.disabled = !(isDry && (isBulk ? answer.count > 0 : answer.changed) && agreed === body);
      session.refresh();
    } catch (error) {
      const words = error instanceof Refusal ? wordsOf(error) : `no answer (${error.message}); done or not, it is not done twice: press again`;
      told.replaceChildren(el("p", { class: "bad" }, words));
      act.disabled = isDry || error instanceof Refusal || agreed !== body;
    } finally {
      dry.disabled = false;
    }
  }

  const panel = el(
    "fieldset", { id: "panel" },
    el("legend", {}, `${action.label}`), el("p", {}, action.about),
    el("div", { oninput: changed, class: "bar" }, reason, actor, step, options.map(([, box, label]) => el("label", {}, box, label))),
    el("div", { class: "bar" }, dry, act, el("button", { id: "close", onclick: close }, "Close")), told,
  );
  queueMicrotask(() => reason.focus());
  return panel;
}

/** Pauses something, with a note. */
export function pausePanel(kind, name, close) {
  const told = el("div", { id: "told", role: "status" });
  const note = el("input", { id: "note", size: 40, placeholder: "why (others read it)", "aria-label": "why", required: true });
  const actor = known() ? null : el("input", { id: "actor", size: 16, placeholder: "your name", "aria-label": "your name", value: sessionStorage.getItem("actor") || "" });
  const go = async (event) => {
    event.preventDefault();
    const body = { kind, name, note: note.value.trim() };
    if (actor && actor.value.trim()) {
      body.actor = actor.value.trim();
      sessionStorage.setItem("actor", body.actor);
    }
    try {
      await ask("v1/pauses", body);
      close();
      session.refresh();
    } catch (error) {
      told.replaceChildren(el("p", { class: "bad" }, wordsOf(error)));
    }
  };
  queueMicrotask(() => note.focus());
  return el("fieldset", { id: "panel" }, el("legend", {}, `Pause ${kind} ${name}`), el("p", {}, "No step of it begins any more; steps under way come to their end."),
    el("form", { onsubmit: go, class: "bar" }, note, actor, el("button", { id: "act", class: "main" }, "Pause"), el("button", { type: "button", id: "close", onclick: close }, "Close")), told);
}
export const resume = (kind, name) => ask(`v1/pauses/${kind}/${encodeURIComponent(name)}`, undefined, { method: "DELETE" });

const fresh = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

/** What a bulk action found, or which procedure carries it out. */
function bulkTold(told, isDry) {
  if (!isDry) return el("p", {}, "Procedure ", linkTo(told.id), " does it, one after the other; its result has the counts.");
  const names = (told.items || []).slice(0, 10).map((one) => el("li", {}, linkTo(one.id), ` ${one.name || one.type || ""} ${one.state || ""}`));
  return el("div", {}, el("p", {}, told.count ? `Would act on ${plural(told.count, "procedure")}:` : "None fits."), el("ul", {}, names), told.count > names.length && el("p", { class: "faint" }, `and ${figure(told.count - names.length)} more`));
}

/** What an action changed, or would change (the answer of the API), as the command line tells it. */
function surgeryTold(told) {
  const head = !told.changed ? "Nothing changes" : told.dry_run ? "Would change" : "Changed";
  const items = (told.procedures || []).map((p) => {
    const fields = Object.keys(p.after || {}).filter((f) => pretty(p.before[f]) !== pretty(p.after[f]));
    const word = (v) => (v === null || v === undefined ? "–" : typeof v === "string" ? v : JSON.stringify(v));
    const lines = fields.map((f) => el("li", {}, `${f}: ${word(p.before[f])} → ${word(p.after[f])}`));
    for (const lock of p.locks_released) lines.push(el("li", {}, `frees ${lockText(lock)}`));
    if (p.undoes && p.undoes.length) lines.push(el("li", {}, `undoes, in this order: ${p.undoes.join(", ")}`));
    if (p.refuses) lines.push(el("li", {}, `refuses ${p.refuses}`));
    return el("li", {}, `${p.procedure} (${p.name})`, el("ul", {}, lines));
  });
  for (const [field, words] of [["redone", "runs again"], ["kept", "is kept"], ["undone", "is undone"]]) {
    if (Array.isArray(told[field]) && told[field].length) items.push(el("li", {}, `${words}: ${told[field].map((one) => (typeof one === "string" ? one : one.step || JSON.stringify(one))).join(", ")}`));
  }
  if (told.forked) items.push(el("li", {}, "the new one: ", linkTo(told.forked)));
  const more = (told.count || 0) - (told.procedures || []).length;
  if (more > 0) items.push(el("li", {}, `and ${more} more`));
  return el("div", {}, el("p", {}, head + (told.why ? `: ${told.why}` : items.length ? ":" : "")), el("ul", {}, items));
}

// ------------------------------------------------------------------------------------- talking to it
const TALKS = {
  signal: { label: "Send a signal", about: "A step takes it with ctx.receive(name), or a workflow with flow.signal(name). It is kept until then.", path: (id) => `v1/procedures/${id}/signals`, body: (name, payload) => ({ name, payload, key: fresh() }), told: (answer) => (answer.sent ? "Sent." : "It was sent before.") },
  update: { label: "Send an update", about: "The procedure checks it, carries it out once, and answers.", path: (id, name) => `v1/procedures/${id}/updates/${encodeURIComponent(name)}`, body: (name, args) => ({ args, key: fresh(), wait_ms: 5000 }), told: (answer) => (answer.done ? (answer.error ? `Refused: ${answer.error.code}: ${answer.error.message}` : pretty(answer.result === undefined ? null : answer.result)) : "It has no answer yet: it goes on by itself.") },
  query: { label: "Query", about: "It answers from what it has stored and changes nothing.", path: (id, name) => `v1/procedures/${id}/queries/${encodeURIComponent(name)}`, body: (name, args) => ({ args }), told: (answer) => pretty(answer.result === undefined ? null : answer.result) },
};

function talkPanel(what, id, close) {
  const talk = TALKS[what];
  const told = el("div", { id: "told", role: "status" });
  const name = el("input", { id: "talk-name", placeholder: "name", "aria-label": "name", required: true });
  const data = el("textarea", { id: "talk-data", rows: 3, placeholder: "JSON, or nothing", "aria-label": "data as JSON", spellcheck: "false" });
  const send = el("button", { id: "send", class: "main" }, talk.label);
  let body = null; // kept when no answer came: the same key again
  const go = async (event) => {
    event.preventDefault();
    let value = null;
    try {
      if (data.value.trim()) value = JSON.parse(data.value);
    } catch (error) {
      told.replaceChildren(el("p", { class: "bad" }, `This is no JSON: ${error.message}`));
      return;
    }
    send.disabled = true;
    body = body || talk.body(name.value, value);
    try {
      const answer = await ask(talk.path(id, name.value), body);
      body = null;
      told.replaceChildren(el("pre", {}, talk.told(answer)));
      session.refresh();
    } catch (error) {
      if (error instanceof Refusal) body = null;
      told.replaceChildren(el("p", { class: "bad" }, error instanceof Refusal ? wordsOf(error) : `${wordsOf(error)}; press again: it is not sent twice`));
    } finally {
      send.disabled = false;
    }
  };
  queueMicrotask(() => name.focus());
  return el("fieldset", { id: "panel" }, el("legend", {}, talk.label), el("p", {}, talk.about),
    el("form", { onsubmit: go, oninput: () => { body = null; }, class: "talkform" }, name, data, el("div", { class: "bar" }, send, el("button", { type: "button", id: "close", onclick: close }, "Close"))), told);
}
