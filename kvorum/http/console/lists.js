// Pages that are one list: schedules, queues, workers, sinks, locks, nodes, partitions.

import { ask, forbidden, query, sees, session, tableNames, wordsOf } from "./api.js";
import { badge, bytes, code, duration, el, empty, figure, linkTo, matches, moment, percent, place, plural, tableOf, userKey, withoutEmpty } from "./dom.js";
import { actionPanel, pausePanel, procedureTable, resume, shownState } from "./procedures.js";

const SCHEDULES_PAGE = 1000; // of the API, fewer if they are large
const LARGE = 500000; // characters: there may be more of them

function listPage(title, load, ...more) {
  const text = el("input", { id: "text", type: "search", placeholder: "any text in the row", "aria-label": "text", oninput: () => session.refresh() });
  return {
    title,
    fixed: [el("form", { class: "bar", onsubmit: (e) => e.preventDefault() }, text), more],
    live: () => load(text.value.trim()),
  };
}

/** A button that asks once more before it does something, and says what went wrong beside it. */
function sure(label, of, act) {
  const said = el("span", { class: "bad", role: "status" });
  const button = el("button", { class: "quiet", onclick: async () => {
    if (button.dataset.sure !== "yes") {
      button.dataset.sure = "yes";
      button.textContent = `${label}: sure?`;
      setTimeout(() => { delete button.dataset.sure; button.textContent = label; }, 4000);
      return;
    }
    button.disabled = true;
    try {
      await act();
      session.refresh();
    } catch (error) {
      said.textContent = ` ${wordsOf(error)}`;
    }
    button.disabled = false;
  } }, label);
  return el("span", { "data-own": true, "data-of": `${label} ${of}` }, button, said);
}

/** A button that pauses something, or lets it go on. */
const pausing = (panel, kind, name, paused) => (paused
  ? sure("Resume", `${kind} ${name}`, () => resume(kind, name))
  : el("button", { class: "quiet", "data-of": `pause ${kind} ${name}`, onclick: () => panel.replaceChildren(pausePanel(kind, name, () => panel.replaceChildren())) }, "Pause"));
const whyPaused = (paused, now) => paused && el("span", { class: "warn" }, `paused by ${paused.by} ${duration(now - paused.at_ms)} ago: ${paused.note}`);
const whenDue = (one) => [...[one.cron || []].flat().map((cron) => [code(cron), " "]), one.every_ms ? `every ${duration(one.every_ms)}` : ""];

/** A form that sends one body. fields: [[name, label, attributes, parse], …]. */
function sender(title, about, fields, send) {
  const said = el("p", { role: "status" });
  const inputs = fields.map(([name, label, attributes]) => [name, el("label", {}, label, el("input", { name, ...attributes }))]);
  const button = el("button", { class: "main" }, "Save");
  const go = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const body = {};
      for (const [name, , , parse] of fields) {
        const value = event.target.elements[name].value.trim();
        if (value) body[name] = parse ? parse(value) : value;
      }
      await send(body);
      said.className = "good";
      said.textContent = "Saved.";
      event.target.reset();
      session.refresh();
    } catch (error) {
      said.className = "bad";
      said.textContent = error instanceof SyntaxError ? `Arguments are JSON: ${error.message}` : wordsOf(error);
    }
    button.disabled = false;
  };
  return el("details", { class: "add" }, el("summary", {}, title), el("p", { class: "faint" }, about), el("form", { onsubmit: go, class: "fields" }, inputs.map(([, label]) => label), button), said);
}

export function schedulesPage() {
  const add = sender(
    "Add or change a schedule", "The procedure is started once at each time of the cron expression: minute, hour, day of month, month, day of week.",
    [
      ["name", "Name", { required: true }], ["cron", "Cron", { placeholder: "0 3 * * *" }], ["every_ms", "or every … ms", { type: "number", min: 1000 }, Number], ["procedure", "Procedure type", { required: true }],
      ["args", "Arguments (JSON)", {}, JSON.parse], ["zone", "Time zone", { placeholder: "UTC" }], ["queue", "Queue", {}],
    ],
    (body) => ask("v1/schedules", body),
  );
  const panel = el("div", {});
  const pages = []; // names that earlier pages began behind
  let after = "", last = "";
  const first = el("button", { id: "newer", disabled: true, onclick: () => { after = pages.pop() || ""; session.refresh(); } }, "Previous");
  const next = el("button", { id: "older", disabled: true, onclick: () => { pages.push(after); after = last; session.refresh(); } }, "Next");
  const pager = el("div", { class: "bar", hidden: true }, el("span", { class: "pager" }, first, next));
  return listPage("Schedules", async (text) => {
    const { items } = await ask(`v1/schedules${query({ after })}`);
    last = items.length ? items[items.length - 1].name : "";
    next.disabled = items.length < SCHEDULES_PAGE && JSON.stringify(items).length < LARGE;
    first.disabled = !pages.length;
    pager.hidden = next.disabled && first.disabled;
    const now = Date.now();
    const rows = items.filter((one) => matches(text, one)).map((one) => [
      one.name, whenDue(one), one.zone, one.procedure, one.paused ? whyPaused(one.paused, now) : one.next_ms ? [moment(one.next_ms).slice(0, 16), " ", el("span", { class: "faint" }, one.next_ms > now ? `in ${duration(one.next_ms - now)}` : `due for ${duration(now - one.next_ms)}`)] : "never",
      one.last_id ? [linkTo(one.last_id), " ", el("span", { class: "faint" }, `${duration(now - one.last_ms)} ago`)] : "", figure(one.runs), one.waiting ? figure(one.waiting) : "", one.overlap || one.missed,
      [
        pausing(panel, "schedule", one.name, one.paused), " ", sure("Run now", one.name, () => ask(`v1/schedules/${encodeURIComponent(one.name)}/trigger`, {})), " ",
        sure("Remove", one.name, () => ask(`v1/schedules/${encodeURIComponent(one.name)}`, undefined, { method: "DELETE" })),
      ],
    ]);
    return tableOf(...withoutEmpty([["name", ""], ["due", "tight"], ["zone", "tight"], ["starts", ""], ["next (UTC)", "tight"], ["last run", "tight"], ["runs", "number"], ["waiting", "number"], ["overlap", "tight"], ["", "tight"]], rows),
      items.length ? "None of them fits the text." : empty("There are no schedules", "Start a procedure at the times of a clock: add one above, or with ", code("kvorum schedule set"), "."));
  }, panel, add, pager);
}

export function queuesPage() {
  const kind = { list: "kinds", placeholder: "queue, type or pool" };
  const add = sender(
    "Limit a queue, a type or a pool", "Zeros take the limit away.",
    [["name", "Name", { required: true }], ["kind", "Kind", kind], ["max_concurrent", "At once, at most", { type: "number", min: 0 }, Number], ["rate_per_s", "Begun per second, at most", { type: "number", min: 0, step: "any" }, Number]],
    (body) => ask("v1/queues", body),
  );
  const panel = el("div", {});
  return listPage("Queues", async (text) => {
    const [{ items }, pauses] = await Promise.all([ask("v1/queues"), ask("v1/pauses")]);
    const now = Date.now();
    const held = new Map(pauses.items.map((one) => [`${one.kind} ${one.name}`, one]));
    const rows = items.filter((one) => matches(text, one)).map((one) => [
      one.name, one.kind, whyPaused(held.get(`${one.kind} ${one.name}`), now), figure(one.running), one.max_concurrent ? [el("meter", { min: 0, max: one.max_concurrent, value: one.running, "aria-label": "in use" }), ` of ${figure(one.max_concurrent)}`] : "no limit",
      one.rate_per_s ? `${figure(one.rate_per_s)} per s` : "no limit", el("span", { class: one.waiting ? "warn" : "" }, figure(one.waiting)),
      pausing(panel, one.kind, one.name, held.get(`${one.kind} ${one.name}`)),
    ]);
    const shown = new Set(items.map((one) => `${one.kind} ${one.name}`));
    const others = pauses.items.filter((one) => !shown.has(`${one.kind} ${one.name}`) && matches(text, one));
    return [tableOf(...withoutEmpty([["name", ""], ["kind", "tight"], ["", ""], ["running", "number"], ["at once", ""], ["rate", "tight"], ["waiting", "number"], ["", "tight"]], rows),
      items.length ? "None of them fits the text." : empty("No queue has a limit or waits for one", "Submit with ", code("queue=…"), " and limit it above, or with ", code("kvorum queue set"), ".")),
    others.length > 0 && [el("h2", {}, "Also paused"), tableOf([["kind", "tight"], ["name", ""], ["", ""], ["", "tight"]], others.map((one) => [
      one.kind, one.kind === "procedure" ? linkTo(one.name) : one.name, whyPaused(one, now), pausing(panel, one.kind, one.name, one),
    ]), "")]];
  }, panel, pauseType(panel), el("datalist", { id: "kinds" }, ["queue", "type", "pool"].map((value) => el("option", { value }))), add);
}

/** A type or pool need not have a limit to be paused. */
function pauseType(panel) {
  const kind = el("select", { "aria-label": "what", id: "pause-kind" }, ["type", "queue", "pool"].map((one) => el("option", { value: one }, one)));
  const name = el("input", { "aria-label": "name of what is paused", id: "pause-name", placeholder: "name", required: true });
  const go = (event) => {
    event.preventDefault();
    panel.replaceChildren(pausePanel(kind.value, name.value.trim(), () => panel.replaceChildren()));
  };
  return el("details", { class: "add" }, el("summary", {}, "Pause a type, a queue or a pool"), el("form", { class: "fields", onsubmit: go }, kind, name, el("button", {}, "Pause …")));
}

export function workersPage() {
  return listPage("Workers", async (text) => {
    const [{ items }, versions] = await Promise.all([ask("v1/workers"), ask("v1/versions")]);
    const rows = items.filter((one) => matches(text, one)).map((one) => [
      one.worker, one.pool, [el("meter", { min: 0, max: one.slots || 1, value: one.running, "aria-label": "slots in use" }), ` ${one.running} of ${one.slots}`],
      (one.procedures || []).slice(0, 8).flatMap((id) => [linkTo(String(id)), " "]), (one.types || []).join(", "),
      one.silent_ms > 5000 ? el("span", { class: "warn" }, duration(one.silent_ms)) : duration(one.silent_ms),
    ]);
    const deployed = versions.items.filter((one) => matches(text, one)).flatMap((type) => type.versions.map((one) => [
      type.name, one.version, figure(one.live), one.new_percent ? `${figure(one.new_percent)} %` : "", one.drained ? badge("drained", "warn") : "",
      one.nodes ? "nodes" : one.workers.join(", "), one.safe_to_stop ? badge("may stop", "good") : one.why_not,
    ]));
    return [tableOf([["worker", ""], ["pool", "tight"], ["slots", "tight"], ["runs", ""], ["types", ""], ["silent for", "number"]], rows,
      items.length ? "None of them fits the text." : empty("No worker is here", "Steps run at the master. Processes of your own run them with ", code("kvorum worker MODULE"), ".")),
    deployed.length > 0 && [el("h2", {}, "Versions of types"), tableOf(...withoutEmpty([["type", ""], ["version", "number"], ["live", "number"], ["of new ones", "number"], ["", "tight"], ["served by", ""], ["may its workers stop", ""]], deployed), "")]];
  });
}

const LEVELS = { good: "good", warn: "warn", note: "faint" };

/** `kvorum …` in a sentence, as code. */
const withCommands = (text) => text.split(/(kvorum (?:spark|proc) \w+ (?:[\w-]+|'.*'))/).map((part, i) => (i % 2 ? code(part) : part));

function attemptRow(one) {
  const tasks = figure(one.tasks) + (one.more ? "+" : "");
  return [
    [code(one.attempt), el("div", { class: "faint helps" }, withCommands(one.do))],
    [one.table, one.app && el("div", { class: "faint" }, `${one.app}, batch ${one.version}`)],
    badge(one.state === "OPEN" && one.level === "warn" ? "silent" : one.state.toLowerCase(), LEVELS[one.level]),
    one.since_ms === null ? "" : el("span", { title: one.began_ms ? `begun ${moment(one.began_ms)}` : "" }, duration(one.since_ms)), one.user,
    [tasks, one.working > 0 && el("span", { class: "faint" }, ` and ${figure(one.working)} at work`)], figure(one.rows) + (one.more ? "+" : ""), figure(one.chunks),
    one.left_ms === null ? "" : duration(one.left_ms), one.procedure && linkTo(one.procedure),
  ];
}

export function sinksPage() {
  const pages = []; // names that earlier pages began behind
  let after = "", on = "";
  const first = el("button", { id: "newer", disabled: true, onclick: () => { after = pages.pop() || ""; session.refresh(); } }, "Previous");
  const next = el("button", { id: "older", disabled: true, onclick: () => { pages.push(after); after = on; session.refresh(); } }, "Next");
  const pager = el("div", { class: "bar", hidden: true }, el("span", { class: "pager" }, first, next));
  return listPage("Sinks", async (text) => {
    const [staged, ...found] = await Promise.all([`v1/sinks${query({ after })}`, ...["kvorum.sink_commit", "kvorum.sink_clean"].map((name) => `v1/procedures?name=${name}`)].map((path) => ask(path)));
    on = staged.after || "";
    next.disabled = !on;
    first.disabled = !pages.length;
    pager.hidden = next.disabled && first.disabled;
    const warned = (one) => (one.level === "warn" ? 0 : 1);
    const attempts = staged.items.filter((one) => matches(text, one)).sort((a, b) => warned(a) - warned(b));
    const items = found.flatMap((one) => one.items).filter((one) => matches(text, one)).sort((a, b) => b.created_ms - a.created_ms);
    return [
      el("h2", {}, "Staged"),
      el("div", { id: "staged" }, tableOf(...withoutEmpty([["attempt", ""], ["table", ""], ["", "tight"], ["since", "tight"], ["by", ""], ["tasks done", "number"], ["rows", "number"], ["chunks", "number"], ["lease", "tight"], ["procedure", "tight"]], attempts.map(attemptRow)),
        staged.items.length ? "None of them fits the text." : empty("Nothing is staged", "While a DataFrame is written its rows lie here, invisible, until its batch is committed."))),
      el("h2", {}, "Commits"),
      el("p", { class: "faint" }, "Batches that Spark commits: each is a procedure, exactly once. The newest that are kept."),
      procedureTable(items, empty("No batch is kept", "Write a DataFrame with ", code('df.write.format("kvorum")'), ": each batch shows here.")),
    ];
  }, pager);
}

// ------------------------------------------------------------------------------------- locks
const who = (ns, table) => (table ? `${ns}.${table}` : "system");

export function locksPage() {
  const panel = el("div", {});
  const steal = (resource, one) => el("button", {
    class: "steal", "data-of": `${one.id} ${resource}`,
    onclick: () => panel.replaceChildren(el("p", {}, `${resource}, from ${one.id} (${one.name})`), actionPanel("steal", "v1/locks/steal", { resource, holder: one.id }, () => panel.replaceChildren())),
  }, "Steal");
  return listPage("Locks", async (text) => {
    const [told, runnable, waiting] = await Promise.all([
      ask("v1/locks"), ask("v1/procedures?state=RUNNABLE"), ask("v1/procedures?state=WAITING"),
    ]);
    const byId = new Map([...runnable.items, ...waiting.items].map((one) => [one.id, one]));
    return lockTables(told, [...byId.values()], text, steal);
  }, panel);
}

/** told: {locks, waits, missing, more}; procedures: those that have not ended. */
function lockTables(told, procedures, text, steal) {
  const waits = told.waits.filter((w) => matches(text, w)).map((w) => [
    w.kind, w.procedure ? linkTo(w.procedure) : w.txn || "a single write", w.owner || "",
    w.resource || `${who(w.ns, w.table)} ${userKey(w.key)}`, duration(w.waited_ms),
    w.holder ? [w.procedure ? linkTo(w.holder) : w.holder, ` ${w.holder_owner || ""}`] : "", w.holder_age_ms === undefined ? "" : duration(w.holder_age_ms), w.node,
  ]);
  const held = told.locks.filter((l) => matches(text, l)).map((l) => [
    l.kind, `${who(l.ns, l.table)} ${userKey(l.key)}${l.end ? ` … ${userKey(l.end)}` : ""}${l.keys > 1 ? ` and ${l.keys - 1} more` : ""}`,
    l.txn, l.owner || "", l.age_ms > 600000 ? el("span", { class: "warn" }, duration(l.age_ms)) : duration(l.age_ms), duration(l.ttl_ms), l.waiting, l.partition, l.node,
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

// ------------------------------------------------------------------------------------- nodes, partitions
export function nodesPage() {
  return listPage("Nodes", async (text) => {
    const [{ items }, cluster] = await Promise.all([ask("v1/nodes"), sees("cluster") ? ask("v1/cluster").catch(forbidden) : null]);
    const fit = items.filter((n) => matches(text, n));
    const dead = (n) => n.state === "down" || n.health === "dead";
    const rows = fit.map((n) => {
      const well = n.state === "live" && (n.health === "alive" || n.health === null);
      const labels = Object.entries(n.labels || {}).filter(([, v]) => v).map(([k, v]) => `${k}=${v}`);
      return [
        n.id, `${n.address}${cluster && n.id === cluster.master ? " (master)" : ""}${n.witness ? " (witness)" : ""}`,
        badge(n.state, well ? "good" : "bad"), n.health || "", duration(n.heard_ms), n.leaders, n.replicas,
        percent(n.cpu), bytes(n.disk_free), n.version || "",
        [...labels, ...(n.tags || [])].join(" "), (n.forced || []).length ? `forced ${n.forced.length}×` : "",
      ];
    });
    return tableOf(...withoutEmpty([["id", "number"], ["address", ""], ["state", "tight"], ["health", "tight"], ["heard", "tight"], ["leads", "number"], ["replicas", "number"], ["cpu", "number"], ["disk free", "number"], ["version", "tight"], ["labels, tags", ""], ["", ""]], rows), "There are none.", (n) => dead(fit[n]) && "dead");
  });
}

export function partitionsPage() {
  return listPage("Partitions", async (text) => {
    const [{ items }, tables] = await Promise.all([ask("v1/partitions"), tableNames()]);
    const rows = items
      .map((p) => [p, place(p.start, tables, false), place(p.end, tables, true)])
      .filter(([p, from, to]) => matches(text, p, from, to))
      .map(([p, from, to]) => {
        const lag = Object.entries(p.lag || {}).filter(([, n]) => n > 0).map(([node, n]) => `${node}: ${n}`);
        const others = [...(p.learners || []).map((n) => `${n} learns`), ...(p.witnesses || []).map((n) => `${n} witness`)];
        const hot = (p.hot_keys || []).map((h) => `${userKey(h.key)} ${Math.round(h.share * 100)} %`);
        return [
          p.id, from, to, p.leader === null ? el("span", { class: "bad" }, "none") : p.leader, [...p.replicas, ...others].join(", "),
          p.epoch, bytes(p.size), figure(p.load), figure(p.reads), figure(p.writes), lag.join(", "), hot.join(", "), p.hint || "",
        ];
      });
    return [
      items.length > rows.length && el("p", { class: "faint" }, `${figure(rows.length)} of ${plural(items.length, "partition")}`),
      tableOf(...withoutEmpty([["id", "number"], ["from", ""], ["up to", ""], ["leader", "number"], ["replicas", "tight"], ["epoch", "number"], ["size", "number"], ["load", "number"], ["reads/s", "number"], ["writes/s", "number"], ["lag", "tight"], ["hot keys", ""], ["hint", ""]], rows), "There are none."),
    ];
  });
}
