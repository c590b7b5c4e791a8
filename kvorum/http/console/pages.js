"use strict";
// What the pages look like: functions of the API's answers that make elements. They ask nobody
// anything (console.js does). Text of users becomes text nodes only, never markup.

const ENDED = new Set(["SUCCESS", "FAILED", "ROLLED_BACK", "BYPASSED"]);
const STATES = ["RUNNABLE", "WAITING", "SUCCESS", "FAILED", "ROLLED_BACK", "BYPASSED"];
const ROWS_MAX = 500; // a browser that lays out 100,000 rows answers nobody

/** An element: el("td", {class: "x", onclick: f}, child, …); children are text or elements. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false || child === "") continue;
    made.append(child instanceof Node ? child : String(child));
  }
  return made;
}

/** Makes the children of an element those: what is alike stays, so that nothing jumps or flickers. An
 * element with a listener says what it is for in an attribute, or it would stay with the old one. */
function settle(parent, wanted) {
  const before = [...parent.childNodes];
  [...wanted].forEach((node, i) => {
    const old = before[i];
    if (!old) parent.append(node);
    else if (!alike(old, node)) old.replaceWith(node);
    else if (node instanceof Text) {
      if (old.data !== node.data) old.data = node.data;
    } else settle(old, node.childNodes);
  });
  for (const old of before.slice(wanted.length)) old.remove();
}

const alike = (old, node) =>
  old.nodeName === node.nodeName && (node instanceof Text || (old.attributes.length === node.attributes.length &&
    [...node.attributes].every(({ name, value }) => old.getAttribute(name) === value)));

function duration(ms) {
  if (ms === undefined || ms === null) return "";
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3 * 3600000) return `${Math.floor(ms / 60000)} min`;
  if (ms < 72 * 3600000) return `${Math.floor(ms / 3600000)} h`;
  return `${Math.floor(ms / 86400000)} days`;
}

const moment = (ms) => (ms ? new Date(ms).toISOString().replace("T", " ").slice(0, 23) + "Z" : "");

function bytes(count) {
  if (count === undefined || count === null) return "";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1024 || unit === "GiB") return `${unit === "B" ? count : count.toFixed(1)} ${unit}`;
    count /= 1024;
  }
}

/** The bytes of a key as the API tells it: text, or {"b64"}. */
function keyBytes(key) {
  if (key === null || key === undefined) return [];
  if (typeof key === "string") return [...new TextEncoder().encode(key)];
  return [...atob(key.b64)].map((c) => c.charCodeAt(0));
}

const visible = (raw) =>
  raw.map((b) => (b >= 32 && b < 127 && b !== 92 ? String.fromCharCode(b) : `\\x${b.toString(16).padStart(2, "0")}`)).join("");

const userKey = (key) => (key === null || key === undefined ? "" : visible(keyBytes(key)));

/** A storage key: the table's id in four bytes, then the user's key. */
function place(key, tables, isEnd) {
  const raw = keyBytes(key);
  if (!raw.length) return isEnd ? "the end" : "the beginning";
  const id = raw.slice(0, 4).reduce((n, b) => n * 256 + b, 0);
  const rest = raw.slice(4);
  if (isEnd && !rest.length && tables.has(id - 1)) return `the end of ${tables.get(id - 1)}`;
  const name = tables.get(id) || `table ${id}`;
  return rest.length ? `${name} ${visible(rest)}` : name;
}

/** columns: [[title, kind], …], kind "number", "tight" or ""; rows: lists of cells. */
function tableOf(columns, rows, none) {
  if (!rows.length) return el("p", { class: "faint" }, none);
  const cut = rows.length > ROWS_MAX;
  return el(
    "div", { class: "scroll" },
    el(
      "table", {},
      el("thead", {}, el("tr", {}, columns.map(([title, kind]) => el("th", { class: kind }, title)))),
      el("tbody", {}, rows.slice(0, ROWS_MAX).map((cells) =>
        el("tr", {}, cells.map((cell, i) => el("td", { class: columns[i][1] }, cell))))),
    ),
    cut && el("p", { class: "faint" }, `The first ${ROWS_MAX} of ${rows.length}.`),
  );
}

const shownState = (state) =>
  el("span", { class: `state ${{ SUCCESS: "good", FAILED: "bad", ROLLED_BACK: "bad", BYPASSED: "warn" }[state] || ""}` }, state);

/** An error with the place in users' code that raised it. */
function raised(error) {
  const place = error.file ? `${error.type}: ${error.message}\nstep ${error.step}, ${error.file}:${error.line}` : error.message;
  return `${error.code}: ${place}${error.traceback ? `\n\n${error.traceback}` : ""}`;
}

const linkTo = (id) => el("a", { href: `#/procedures/${id}` }, id);
const lockText = (lock) => `${lock.mode} ${lock.resource}`;

/** What keeps one that has not ended, if it is not as usual. */
function keeps(one) {
  if (one.parked) return el("span", { class: "bad" }, `parked: ${one.parked}`);
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

/** Every word of the text must be somewhere in the row. */
function matches(text, ...fields) {
  const all = fields.map((f) => (typeof f === "string" ? f : JSON.stringify(f) || "")).join(" ").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

function procedureList(items, text) {
  const rows = items.filter((one) => matches(text, one)).map(procedureRow);
  const full = items.length >= 100;
  return [
    tableOf(PROCEDURE_COLUMNS, rows, items.length ? "None of them fits the text." : "There are none."),
    full && el("p", { class: "faint" }, "The 100 newest that fit state, owner and name: narrow those to see others."),
  ];
}

const pretty = (value) => JSON.stringify(value, null, 2);
const pairs = (list) => el("dl", {}, list.filter(([, v]) => v !== "" && v !== null && v !== undefined && v !== false)
  .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

/** told: {one, explain, children, childrenMore, audit} */
function procedureDetail(told) {
  const one = told.one;
  const now = one.created_ms + one.age_ms; // the node's clock, not ours
  const waits = ((told.explain && told.explain.waits) || []).map((wait) => [
    wait.kind, wait.text, wait.since_ms ? duration(now - wait.since_ms) : "",
    wait.holder ? linkTo(wait.holder) : wait.holder_txn ? `transaction ${wait.holder_txn}` : "",
  ]);
  const steps = (one.steps || []).map((s) => [s.step, s.outcome, s.attempt, moment(s.start_ms), duration(s.took_ms)]);
  const locks = one.locks.map((lock) => [lock.mode, lock.resource]);
  return [
    told.explain && el("p", { class: "sentence", id: "sentence" }, told.explain.sentence),
    pairs([
      ["state", shownState(one.state)], ["step", one.step], ["attempt", one.attempt], ["owner", one.owner],
      ["parent", one.parent && linkTo(one.parent)], ["created", moment(one.created_ms)], ["age", duration(one.age_ms)],
      ["changed", moment(one.updated_ms)], ["goes on at", moment(one.due_ms)], ["queue", one.queue],
      ["priority", one.priority], ["version", one.version], ["pool", one.pool], ["worker", one.worker],
      ["what keeps it", !ENDED.has(one.state) && keeps(one)],
    ]),
    one.error && [el("h3", {}, "Error"), el("pre", {}, raised(one.error))],
    !one.error && one.retrying && one.retrying.traceback && [el("h3", {}, "Retries after"), el("pre", {}, raised(one.retrying))],
    one.args !== undefined && one.args !== null && [el("h3", {}, "Arguments"), el("pre", {}, pretty(one.args))],
    one.ctx_state && Object.keys(one.ctx_state).length > 0 && [el("h3", {}, "State"), el("pre", {}, pretty(one.ctx_state))],
    one.result !== undefined && [el("h3", {}, "Result"), el("pre", {}, pretty(one.result))],
    el("h3", {}, "Waits"), tableOf([["kind", "tight"], ["what", ""], ["for", "tight"], ["who has it", "tight"]], waits, "Nothing is known."),
    el("h3", {}, "Steps"),
    tableOf([["step", ""], ["outcome", ""], ["attempt", "number"], ["began", "tight"], ["took", "number"]], steps, "None has ended."),
    el("h3", {}, "Locks"), tableOf([["mode", "tight"], ["resource", ""]], locks, "It has none."),
    el("h3", {}, "Children"), tableOf(PROCEDURE_COLUMNS, told.children.map(procedureRow), "It has none."),
    told.childrenMore > 0 && el("p", { class: "faint" }, `and ${told.childrenMore} earlier ones.`),
    el("h3", {}, "What was done to it"),
    tableOf(
      [["when", "tight"], ["who", ""], ["what", "tight"], ["why", ""]],
      told.audit.map((a) => [moment(a.at_ms), a.actor, a.what, a.reason]), "Nothing.",
    ),
  ];
}

const ACTIONS = {
  abort: { label: "Abort", about: "It fails and rolls back what it did.", options: [] },
  bypass: {
    label: "Bypass", about: "It ends where it stands: nothing is undone, its locks are free, its parent goes on.",
    options: [["override", "also while a step is under way"], ["recursive", "with everything below it"]],
  },
  retry: { label: "Retry", about: "It goes on at once.", options: [], step: true },
  steal: { label: "Steal", about: "The lock goes to who is next; late writes of its holder are refused.", options: [] },
};

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
  const more = (told.count || 0) - items.length;
  if (more > 0) items.push(el("li", {}, `and ${more} more`));
  return el("div", {}, el("p", {}, head + (told.why ? `: ${told.why}` : items.length ? ":" : "")), el("ul", {}, items));
}

const who = (ns, table) => (table ? `${ns}.${table}` : "system");

/** told: {locks, waits, missing, more}; procedures: those that have not ended. */
function lockTables(told, procedures, text, steal) {
  const waits = told.waits.filter((w) => matches(text, w)).map((w) => [
    w.kind, w.procedure ? linkTo(w.procedure) : w.txn || "a single write", w.owner || "",
    w.resource || `${who(w.ns, w.table)} ${userKey(w.key)}`, duration(w.waited_ms),
    w.holder ? [w.procedure ? linkTo(w.holder) : w.holder, ` ${w.holder_owner || ""}`] : "", w.holder_age_ms === undefined ? "" : duration(w.holder_age_ms), w.node,
  ]);
  const held = told.locks.filter((l) => matches(text, l)).map((l) => [
    l.kind, `${who(l.ns, l.table)} ${userKey(l.key)}${l.end ? ` … ${userKey(l.end)}` : ""}${l.keys > 1 ? ` and ${l.keys - 1} more` : ""}`,
    l.txn, l.owner || "", duration(l.age_ms), duration(l.ttl_ms), l.waiting, l.partition, l.node,
  ]);
  const own = procedures.flatMap((p) => p.locks.map((lock) => ({ p, lock })))
    .filter(({ p, lock }) => matches(text, p.name, p.id, lock.resource))
    .map(({ p, lock }) => {
      const waiting = told.waits.some((w) => w.procedure === p.id && w.resource.startsWith("lock ")); // it gets all or none
      return [
        lock.resource, lock.mode, waiting ? el("span", { class: "warn" }, "waits for it") : "has it", linkTo(p.id), p.name,
        shownState(p.state), duration(p.age_ms), !waiting && steal(lock.resource, p),
      ];
    });
  return [
    el("h2", {}, "Who waits"),
    tableOf([["kind", "tight"], ["who", ""], ["owner", ""], ["for", ""], ["since", "tight"], ["held by", ""], ["holder's age", "tight"], ["node", "number"]], waits, "Nobody waits."),
    el("h2", {}, "Locks of procedures"),
    tableOf([["resource", ""], ["mode", "tight"], ["", "tight"], ["procedure", "tight"], ["name", ""], ["state", "tight"], ["age", "tight"], ["", "tight"]], own, "No live procedure has or wants one."),
    el("h2", {}, "Keys that transactions hold"),
    tableOf([["kind", "tight"], ["key", ""], ["transaction", "tight"], ["owner", ""], ["age", "tight"], ["lives", "tight"], ["waiting", "number"], ["partition", "number"], ["node", "number"]], held, "No key is held."),
    told.missing.length > 0 && el("p", { class: "bad" }, `Nodes that did not answer: ${told.missing.join(", ")}`),
    told.more && el("p", { class: "faint" }, "There are more: the lists were cut."),
  ];
}

function nodeTable(items, master, text) {
  const rows = items.filter((n) => matches(text, n)).map((n) => {
    const well = n.state === "live" && (n.health === "alive" || n.health === null);
    const labels = Object.entries(n.labels || {}).filter(([, v]) => v).map(([k, v]) => `${k}=${v}`);
    return [
      n.id, `${n.address}${n.id === master ? " (master)" : ""}${n.witness ? " (witness)" : ""}`,
      el("span", { class: well ? "state good" : "state bad" }, n.state), n.health || "", duration(n.heard_ms), n.leaders, n.replicas,
      n.cpu === undefined || n.cpu === null ? "" : `${(n.cpu * 100).toFixed(1)} %`, bytes(n.disk_free), n.version || "",
      [...labels, ...(n.tags || [])].join(" "), (n.forced || []).length ? `forced ${n.forced.length}×` : "",
    ];
  });
  return tableOf([["id", "number"], ["address", ""], ["state", "tight"], ["health", "tight"], ["heard", "tight"], ["leads", "number"], ["replicas", "number"], ["cpu", "number"], ["disk free", "number"], ["version", "tight"], ["labels, tags", ""], ["", ""]], rows, "There are none.");
}

function partitionTable(items, tables, text) {
  const rows = items
    .map((p) => [p, place(p.start, tables, false), place(p.end, tables, true)])
    .filter(([p, from, to]) => matches(text, p, from, to))
    .map(([p, from, to]) => {
      const lag = Object.entries(p.lag || {}).filter(([, n]) => n > 0).map(([node, n]) => `${node}: ${n}`);
      const others = [...(p.learners || []).map((n) => `${n} learns`), ...(p.witnesses || []).map((n) => `${n} witness`)];
      const hot = (p.hot_keys || []).map((h) => `${userKey(h.key)} ${Math.round(h.share * 100)} %`);
      return [
        p.id, from, to, p.leader === null ? el("span", { class: "bad" }, "none") : p.leader, [...p.replicas, ...others].join(", "),
        p.epoch, bytes(p.size), p.load, p.reads, p.writes, lag.join(", "), hot.join(", "), p.hint || "",
      ];
    });
  return tableOf([["id", "number"], ["from", ""], ["up to", ""], ["leader", "number"], ["replicas", "tight"], ["epoch", "number"], ["size", "number"], ["load", "number"], ["reads/s", "number"], ["writes/s", "number"], ["lag", "tight"], ["hot keys", ""], ["hint", ""]], rows, "There are none.");
}
