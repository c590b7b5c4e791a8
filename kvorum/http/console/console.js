"use strict";
// The pages at work: asks the API, shows the answer, sends what an operator decides.
//
// One page at a time, named by the fragment (#/procedures/12). A page has a static part, made once
// (its filters and buttons keep what was typed), and a live part, made anew from every answer. An
// answer that comes after the page was left is thrown away (`visit`).

const REFRESH_MS = 2000;
const PATIENCE_MS = 15000; // of one request
const CHILDREN_MAX = 30; // of the newest round, each a request
const AUDIT_MAX = 20; // actions that a procedure's page shows
const TABLES_MS = 30000; // names of tables change seldom

const main = document.getElementById("main");
const trouble = document.getElementById("trouble");
const live = document.getElementById("live");
let visit = 0; // grows with every change of the page
let timer = 0;
let me = null; // who is logged in, as console/session says
let names = { at: -Infinity, tables: new Map() };

class Refusal extends Error {
  constructor(status, told) {
    super(told.message);
    this.status = status;
    this.code = told.code;
  }
}

/** One request of the API; raises Refusal with its words, or an error of the network. */
async function ask(path, body) {
  const options = { signal: AbortSignal.timeout(PATIENCE_MS), headers: { accept: "application/json" } };
  if (body !== undefined) {
    options.method = "POST";
    if (me && me.csrf) options.headers["x-kvorum-csrf"] = me.csrf;
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  const told = await answer.json();
  if (answer.status === 401 && me) enter("Your session has ended: log in again.");
  if (!answer.ok) throw new Refusal(answer.status, told.error);
  return told;
}

const sees = (page) => me !== null && me.pages.includes(page);

const query = (values) => {
  const set = Object.entries(values).filter(([, value]) => value);
  return set.length ? `?${new URLSearchParams(set)}` : "";
};

function complain(error) {
  const words = error instanceof Refusal ? `${error.code}: ${error.message}` : `the node does not answer (${error.message})`;
  trouble.textContent = error ? words : "";
  trouble.hidden = false;
}

async function tableNames() {
  if (performance.now() - names.at < TABLES_MS) return names.tables;
  const tables = new Map();
  if (!sees("cluster")) return tables; // these are told by their ids
  for (const ns of (await ask("v1/namespaces")).items) {
    for (const table of (await ask(`v1/namespaces/${encodeURIComponent(ns.name)}/tables`)).items) {
      tables.set(table.id, `${ns.name}.${table.name}`);
    }
  }
  names = { at: performance.now(), tables };
  return tables;
}

// ------------------------------------------------------------------------------------- pages
// Each: (argument) → {fixed: elements made once, live: async () → elements}

function textFilter(holder) {
  const box = el("input", { id: "text", type: "search", placeholder: "any text in the row", "aria-label": "text", oninput: () => refresh() });
  holder.text = () => box.value.trim();
  return box;
}

/** A field for a procedure's id, and what its form does. */
function byId() {
  const id = el("input", { id: "id", placeholder: "go to id", "aria-label": "id", inputmode: "numeric", size: 10 });
  const go = (event) => {
    event.preventDefault();
    if (/^\d+$/.test(id.value.trim())) location.hash = `#/procedures/${id.value.trim()}`;
    else refresh();
  };
  return { id, go };
}

function proceduresPage() {
  const holder = {};
  const state = el("select", { id: "state", "aria-label": "state", onchange: () => refresh() }, el("option", { value: "" }, "any state"), STATES.map((s) => el("option", { value: s }, s)));
  const name = el("input", { id: "name", placeholder: "name", "aria-label": "name", onchange: () => refresh() });
  const owner = el("input", { id: "owner", placeholder: "owner", "aria-label": "owner", onchange: () => refresh() });
  const { id, go } = byId();
  return {
    fixed: el("form", { onsubmit: go }, state, name, owner, textFilter(holder), id, el("button", {}, "Go")),
    live: async () => {
      const found = await ask(`v1/procedures${query({ state: state.value, name: name.value.trim(), owner: owner.value.trim() })}`);
      return procedureList(found.items, holder.text());
    },
  };
}

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

const gone = (error) => {
  if (error instanceof Refusal && error.status === 404) return null;
  throw error;
};

const forbidden = (error) => {
  if (error instanceof Refusal && error.status === 403) return null;
  throw error;
};

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

function procedurePage(id) {
  const heading = el("h2", { id: "title" }, `Procedure ${id}`);
  const panel = el("div", {});
  let asked = false; // whether this user may do something to it
  const buttons = ["abort", "bypass", "retry"].map((what) =>
    el("button", { id: what, disabled: true, onclick: () => panel.replaceChildren(actionPanel(what, `v1/procedures/${id}/${what}`, {}, () => panel.replaceChildren())) }, ACTIONS[what].label));
  const bar = el("div", { hidden: true }, buttons.flatMap((button) => [button, " "]));
  return {
    fixed: el("div", {}, heading, bar, panel),
    live: async () => {
      const one = await ask(`v1/procedures/${id}`);
      const [explain, audit, family] = await Promise.all([
        ask(`v1/procedures/${id}/explain`).catch(gone), auditOf(id).catch(forbidden), childrenOf(one),
      ]);
      heading.textContent = `Procedure ${id}: ${one.name}`;
      if (!asked) {
        bar.hidden = !(await ask(`console/session${query({ of: one.name })}`)).operates;
        asked = true;
      }
      for (const button of buttons) button.disabled = ENDED.has(one.state);
      return procedureDetail({ one, explain, audit: audit || [], ...family });
    },
  };
}

/** Reason, options, a dry run, and only then the deed, with exactly what the dry run was told. */
function actionPanel(what, path, more, close) {
  const action = ACTIONS[what];
  let agreed = null; // the body of the last dry run that would change something
  const told = el("div", { id: "told", role: "status" });
  const reason = el("input", { id: "reason", size: 40, placeholder: "why (kept in the audit)", "aria-label": "reason" });
  const actor = known() ? null : el("input", { id: "actor", size: 16, placeholder: "your name", "aria-label": "your name", value: sessionStorage.getItem("actor") || "" });
  const step = action.step && el("input", { id: "step", size: 16, placeholder: "step (its own)", "aria-label": "step" });
  const options = action.options.map(([name, label]) => [name, el("input", { type: "checkbox", id: name }), label]);
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
      agreed = { ...more, reason: reason.value.trim(), key: crypto.getRandomValues(new Uint32Array(4)).join("-") };
      if (actor && actor.value.trim()) agreed.actor = actor.value.trim();
      if (step && step.value.trim()) agreed.step = step.value.trim();
      for (const [name, box] of options) if (box.checked) agreed[name] = true;
    }
    const body = agreed;
    act.disabled = dry.disabled = true;
    try {
      const { key, ...dryBody } = body; // a dry run does not use up the key under which it is done once
      const answer = await ask(path, isDry ? { ...dryBody, dry_run: true } : body);
      told.replaceChildren(surgeryTold(answer));
      act.disabled = !(isDry && answer.changed && agreed === body);
      refresh();
    } catch (error) {
      const words = error instanceof Refusal ? `${error.code}: ${error.message}` : `no answer (${error.message}); done or not, it is not done twice: press again`;
      told.replaceChildren(el("p", { class: "bad" }, words));
      act.disabled = isDry || error instanceof Refusal || agreed !== body;
    } finally {
      dry.disabled = false;
    }
  }

  const panel = el(
    "fieldset", { id: "panel" },
    el("legend", {}, `${action.label}`), el("p", {}, action.about),
    el("div", { oninput: changed }, reason, " ", actor, actor && " ", step, step && " ", options.map(([, box, label]) => [el("label", {}, box, label), " "])),
    el("p", {}, dry, " ", act, " ", el("button", { id: "close", onclick: close }, "Close")), told,
  );
  queueMicrotask(() => reason.focus());
  return panel;
}

function locksPage() {
  const holder = {};
  const panel = el("div", {});
  const steal = (resource, one) => el("button", {
    class: "steal", "data-of": `${one.id} ${resource}`,
    onclick: () => panel.replaceChildren(el("p", {}, `${resource}, from ${one.id} (${one.name})`), actionPanel("steal", "v1/locks/steal", { resource, holder: one.id }, () => panel.replaceChildren())),
  }, "Steal");
  return {
    fixed: el("div", {}, el("form", { onsubmit: (e) => e.preventDefault() }, textFilter(holder)), panel),
    live: async () => {
      const [told, runnable, waiting] = await Promise.all([
        ask("v1/locks"), ask("v1/procedures?state=RUNNABLE"), ask("v1/procedures?state=WAITING"),
      ]);
      const byId = new Map([...runnable.items, ...waiting.items].map((one) => [one.id, one]));
      return lockTables(told, [...byId.values()], holder.text(), steal);
    },
  };
}

function listPage(load) {
  const holder = {};
  return {
    fixed: el("form", { onsubmit: (e) => e.preventDefault() }, textFilter(holder)),
    live: () => load(holder),
  };
}

/** The login: by the issuer, if there is one; a user and a password; or a token. */
function loginPage(issuer, why) {
  const said = el("p", { class: "bad", role: "alert", id: "refused", hidden: !why }, why || "");
  const user = el("input", { id: "name", autocomplete: "username", required: true });
  const password = el("input", { id: "password", type: "password", autocomplete: "current-password", required: true });
  const token = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const form = (button, fields, body) => {
    const send = async (event) => {
      event.preventDefault();
      const told = body();
      button.disabled = true;
      token.value = password.value = "";
      try {
        await ask("console/login", told);
        await enter();
      } catch (error) {
        said.textContent = error.message;
        said.hidden = false;
      }
      button.disabled = false;
    };
    return el("form", { onsubmit: send }, fields.map(([title, field]) => el("label", {}, title, field)), button);
  };
  const first = issuer ? "" : "main";
  return el(
    "div", { id: "login", class: "door" }, el("h1", {}, "Kvorum"), el("h2", {}, "Log in"), said,
    issuer && [
      el("a", { id: "issuer", class: "button main", href: issuer.begin, onclick: () => sessionStorage.setItem("back", location.hash) }, `Log in with ${issuer.name}`),
      el("p", { class: "or" }, "or"),
    ],
    form(el("button", { class: first }, "Log in"), [["User", user], ["Password", password]], () => ({ user: user.value, password: password.value })),
    el("details", {}, el("summary", {}, "Log in with a token"), form(el("button", {}, "Log in with the token"), [["Token", token]], () => ({ token: token.value.trim() }))),
  );
}

/** What somebody may not see is said once, and not asked for. */
function closedPage(name) {
  const { id, go } = byId();
  const words = `${me.user} may not see the page of ${name}: an administrator can grant it (`;
  return {
    fixed: el(
      "div", { id: "closed" }, el("p", {}, words, el("code", {}, "kvorum grant give"), ")."),
      el("p", { class: "faint" }, "A procedure that you may see is found by its id:"), el("form", { onsubmit: go }, id, el("button", {}, "Go")),
    ),
    live: null,
  };
}

const PAGES = {
  procedures: (id) => (id ? procedurePage(id) : proceduresPage()),
  locks: locksPage,
  nodes: () => listPage(async (holder) => {
    const [nodes, cluster] = await Promise.all([ask("v1/nodes"), aboutCluster()]);
    return nodeTable(nodes.items, cluster && cluster.master, holder.text());
  }),
  partitions: () => listPage(async (holder) => {
    const [found, tables] = await Promise.all([ask("v1/partitions"), tableNames()]);
    return partitionTable(found.items, tables, holder.text());
  }),
};

// ------------------------------------------------------------------------------------- refresh
let page = null;
let shown = null; // the live part
let asking = false;
let again = false;

const known = () => me !== null && me.credential !== "loopback";

/** Asks who is logged in; opens the page, or the login, which says why. */
async function enter(why) {
  clearTimeout(timer);
  const before = me && me.user;
  me = null; // nothing that was asked for somebody else is shown
  visit += 1;
  const told = await ask("console/session");
  me = told.user === null ? null : told;
  if (!me || me.user !== before) names = { at: -Infinity, tables: new Map() };
  const notice = document.getElementById("notice");
  notice.textContent = (me && me.notice) || "";
  notice.hidden = !notice.textContent;
  document.getElementById("top").hidden = me === null;
  document.getElementById("cluster").textContent = "";
  document.getElementById("me").hidden = !known();
  document.getElementById("user").textContent = known() ? `${me.user} (${me.credential})` : "";
  for (const link of document.querySelectorAll("[data-page]")) link.hidden = !sees(link.dataset.page);
  if (me) {
    const back = sessionStorage.getItem("back"); // where it was before it went to the issuer
    sessionStorage.removeItem("back");
    if (back && !location.hash) history.replaceState(null, "", back);
    open();
  } else {
    trouble.hidden = true;
    main.replaceChildren(loginPage(told.issuer, told.why || why));
  }
}

async function leave() {
  let told = {};
  try {
    told = await ask("console/logout", {});
  } finally {
    if (told.goodbye) location.assign(told.goodbye);
    else {
      me = null;
      await enter();
    }
  }
}

function open() {
  if (!me) return;
  visit += 1;
  const [, name, argument] = location.hash.split("/");
  const first = Object.keys(PAGES).find(sees) || "procedures";
  const wanted = Object.hasOwn(PAGES, name || "") ? name : first;
  const id = /^\d+$/.test(argument || "") ? argument : "";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${wanted}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  page = sees(wanted) || id ? PAGES[wanted](id) : closedPage(wanted);
  shown = el("div", { id: "shown" }, page.live && el("p", { class: "faint" }, "Asking the node …"));
  main.replaceChildren(page.fixed, shown);
  trouble.hidden = true;
  refresh();
}

/** Ask now, once more if asked meanwhile, and again in REFRESH_MS while somebody looks. */
async function refresh() {
  if (!me) return;
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  clearTimeout(timer);
  do {
    again = false;
    await look();
  } while (again && me);
  asking = false;
  timer = setTimeout(tick, REFRESH_MS);
}

function tick() {
  if (live.checked && document.visibilityState === "visible" && !picking()) refresh();
  else timer = setTimeout(tick, REFRESH_MS);
}

/** A button that is replaced between press and release gets no click. The click follows the release. */
let pressed = false;
main.addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => { pressed = false; });

/** Whether somebody has marked text in what would be replaced. */
function picking() {
  const marked = document.getSelection();
  return !marked.isCollapsed && shown.contains(marked.anchorNode);
}

const aboutCluster = async () => (sees("cluster") ? ask("v1/cluster").catch(forbidden) : null);

async function look() {
  const began = visit;
  try {
    const [made, cluster] = await Promise.all([page.live && page.live(), aboutCluster()]);
    while (pressed) await new Promise((done) => setTimeout(done, 50));
    if (began !== visit) {
      again = true;
      return;
    }
    settle(shown, [made].flat(Infinity).filter((one) => one));
    const master = !cluster ? "" : cluster.master === null ? "no master now" : `master ${cluster.master}`;
    document.getElementById("cluster").textContent = cluster && `cluster ${cluster.cluster || "?"} · ${master} · nodes: ${cluster.nodes} · partitions: ${cluster.partitions}`;
    trouble.hidden = true;
    document.body.dataset.looks = String(Number(document.body.dataset.looks || 0) + 1);
  } catch (error) {
    if (began === visit) complain(error);
    else again = true;
  }
}

window.addEventListener("hashchange", open);
live.addEventListener("change", () => live.checked && refresh());
document.getElementById("logout").addEventListener("click", leave);
enter().catch(complain);
