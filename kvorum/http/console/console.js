// The shell: who is logged in, which page is open, and when it asks again.
//
// One page at a time, named by the fragment (#/procedures/12?kind=stuck). A page has a static part,
// made once (its filters, editors and buttons keep what was typed), and a live part, made anew from
// every answer and laid over the one before. An answer that comes after the page was left is thrown
// away (`visit`).

import { ask, forbidden, known, sees, session, wordsOf } from "./api.js";
import { dataPage } from "./data.js";
import { el, flat, settle } from "./dom.js";
import { locksPage, nodesPage, partitionsPage, queuesPage, schedulesPage, sinksPage, workersPage } from "./lists.js";
import { overviewPage } from "./overview.js";
import { procedurePage, proceduresPage } from "./procedures.js";

const REFRESH_MS = 2000; // a page may ask for another pace (`every`)

const main = document.getElementById("main");
const heading = document.getElementById("heading");
const trouble = document.getElementById("trouble");
const live = document.getElementById("live");
const theme = document.getElementById("theme");
let visit = 0; // grows with every change of the page
let timer = 0;

function complain(error) {
  trouble.textContent = wordsOf(error);
  trouble.hidden = false;
}

// A page: (argument, query) → {title, fixed: elements made once, live: async () → elements, every: ms}
const PAGES = {
  overview: overviewPage,
  data: dataPage,
  procedures: (id, told) => (id ? procedurePage(id, told.get("at")) : proceduresPage(told)),
  schedules: schedulesPage,
  queues: queuesPage,
  workers: workersPage,
  sinks: sinksPage,
  locks: locksPage,
  nodes: nodesPage,
  partitions: partitionsPage,
};

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
  const id = el("input", { id: "id", placeholder: "go to id", "aria-label": "id", inputmode: "numeric", size: 10 });
  const go = (event) => {
    event.preventDefault();
    if (/^\d+$/.test(id.value.trim())) location.hash = `#/procedures/${id.value.trim()}`;
  };
  const words = `${session.user} may not see the page of ${name}: an administrator can grant it (`;
  return {
    title: name[0].toUpperCase() + name.slice(1),
    fixed: el(
      "div", { id: "closed" }, el("p", {}, words, el("code", {}, "kvorum grant give"), ")."),
      el("p", { class: "faint" }, "A procedure that you may see is found by its id:"), el("form", { onsubmit: go }, id, el("button", {}, "Go")),
    ),
    live: null,
  };
}

// ------------------------------------------------------------------------------------- who, where
let page = null;
let shown = null; // the live part
let asking = false;
let again = false;

/** Asks who is logged in; opens the page, or the login, which says why. */
async function enter(why) {
  clearTimeout(timer);
  session.me = null; // nothing that was asked for somebody else is shown
  visit += 1;
  const told = await ask("console/session");
  const me = session.me = told.user === null ? null : told;
  const notice = document.getElementById("notice");
  notice.textContent = (me && me.notice) || "";
  notice.hidden = !notice.textContent;
  document.getElementById("top").hidden = heading.hidden = me === null;
  document.body.classList.toggle("in", me !== null);
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
      session.me = null;
      await enter();
    }
  }
}

function open() {
  if (!session.me) return;
  visit += 1;
  const [path, said] = location.hash.slice(2).split("?");
  const [name, ...rest] = path.split("/");
  const first = Object.keys(PAGES).find(sees) || "procedures";
  const wanted = Object.hasOwn(PAGES, name) ? name : first;
  const argument = rest.map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  const id = wanted === "procedures" && !/^\d+$/.test(argument[0] || "") ? "" : argument[0] || "";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${wanted}`) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  page = sees(wanted) || (wanted === "procedures" && id) ? PAGES[wanted](id, new URLSearchParams(said || ""), argument) : closedPage(wanted);
  name_(page.title);
  shown = el("div", { id: "shown" }, page.live && el("p", { class: "faint" }, "Asking the node …"));
  main.replaceChildren(...flat([page.fixed, shown]));
  trouble.hidden = true;
  delete main.dataset.stale;
  refresh();
}

function name_(title) {
  heading.textContent = title;
  document.title = `${title} · Kvorum console`;
}
session.titled = name_;

// ------------------------------------------------------------------------------------- refresh
/** Ask now, once more if asked meanwhile, and again after a while, as long as somebody looks. */
async function refresh() {
  if (!session.me) return;
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  clearTimeout(timer);
  do {
    again = false;
    await look();
  } while (again && session.me);
  asking = false;
  timer = setTimeout(tick, page.every || REFRESH_MS);
}

function tick() {
  if (page.live && live.checked && document.visibilityState === "visible" && !picking()) refresh();
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

async function look() {
  const began = visit;
  const cluster_ = sees("cluster") ? ask("v1/cluster").catch(forbidden) : null;
  try {
    const [made, cluster] = await Promise.all([page.live && page.live(), cluster_]);
    while (pressed) await new Promise((done) => setTimeout(done, 50));
    if (began !== visit) {
      again = true;
      return;
    }
    if (page.live) settle(shown, flat(made));
    const master = !cluster ? "" : cluster.master === null ? "no master now" : `master ${cluster.master}`;
    document.getElementById("cluster").textContent = cluster && `cluster ${cluster.cluster || "?"} · ${master} · nodes: ${cluster.nodes} · partitions: ${cluster.partitions}`;
    trouble.hidden = true;
    delete main.dataset.stale;
    document.body.dataset.looks = String(Number(document.body.dataset.looks || 0) + 1);
  } catch (error) {
    if (began === visit) {
      complain(error);
      main.dataset.stale = "true"; // what is there is old, and looks it
    } else again = true;
  }
}

// For tests: whether a request of the page is under way, and how to begin one.
window.console_ = { refresh, get asking() { return asking; } };

session.ended = enter;
session.refresh = refresh;
let wide = main.clientWidth;
window.addEventListener("resize", () => {
  if (page && main.clientWidth !== wide) refresh(); // pictures are drawn for a width
  wide = main.clientWidth;
});
window.addEventListener("hashchange", () => {
  open();
  heading.focus({ preventScroll: true }); // who hears the page is told where he is
});
live.addEventListener("change", () => live.checked && refresh());
theme.value = document.documentElement.dataset.theme;
theme.addEventListener("change", () => {
  localStorage.setItem("kvorum.theme", theme.value);
  document.documentElement.dataset.theme = theme.value;
});
document.getElementById("logout").addEventListener("click", leave);
document.getElementById("skip").addEventListener("click", () => main.focus());
enter().catch(complain);
