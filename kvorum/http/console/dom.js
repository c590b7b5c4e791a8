// Elements, and how values look. Text of users becomes text nodes and attributes only, never markup.

const SVG = "http:/" + "/www.w3.org/2000/svg"; // a name, nothing is fetched there
const SHAPES = new Set(["svg", "g", "path", "rect", "line", "circle", "text", "polyline", "title", "defs", "pattern"]);
export const ROWS_MAX = 500; // a browser that lays out 100,000 rows answers nobody

/** An element: el("td", {class: "x", onclick: f}, child, …); children are text or elements. */
export function el(tag, attributes, ...children) {
  const made = SHAPES.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...flat(children));
  return made;
}

export const flat = (children) => [children].flat(Infinity)
  .filter((child) => child !== undefined && child !== null && child !== false && child !== true && child !== "")
  .map((child) => (child instanceof Node ? child : String(child)));

/** Makes the children of an element those: what is alike stays, so that nothing jumps or flickers. An
 * element with a listener says what it is for in an attribute, or it would stay with the old one. What
 * has `data-own` is made once and changes by itself. */
export function settle(parent, wanted) {
  const before = [...parent.childNodes];
  [...wanted].forEach((node, i) => {
    const old = before[i];
    if (!old) parent.append(node);
    else if (!alike(old, node)) old.replaceWith(node);
    else if (node instanceof Text) {
      if (old.data !== node.data) old.data = node.data;
    } else if (!node.hasAttribute("data-own")) settle(old, node.childNodes);
  });
  for (const old of before.slice(wanted.length)) old.remove();
}

function alike(old, node) {
  if (old.nodeName !== node.nodeName || node instanceof Text) return old.nodeName === node.nodeName;
  const wanted = said(node);
  return said(old).length === wanted.length && wanted.every(({ name, value }) => old.getAttribute(name) === value);
}
/** What was said of an element; whether it is open is up to who reads it. */
const said = (node) => [...node.attributes].filter(({ name }) => name !== "open");

// ------------------------------------------------------------------------------------ values
export function duration(ms) {
  if (ms === undefined || ms === null) return "";
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3 * 3600000) return `${Math.floor(ms / 60000)} min`;
  if (ms < 72 * 3600000) return `${Math.floor(ms / 3600000)} h`;
  return `${Math.floor(ms / 86400000)} days`;
}

/** The same with more of it, for axes. */
export const finely = (ms) => (ms < 120000 ? duration(ms) : ms < 3 * 3600000 ? `${Math.floor(ms / 60000)} min ${Math.round(ms / 1000) % 60} s` : ms < 72 * 3600000 ? `${Math.floor(ms / 3600000)} h ${Math.round(ms / 60000) % 60} min` : `${(ms / 86400000).toFixed(1)} days`);

export const moment = (ms) => (ms ? new Date(ms).toISOString().replace("T", " ").slice(0, 23) + "Z" : "");

export function bytes(count) {
  if (count === undefined || count === null) return "";
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (count < 1024 || unit === "TiB") return `${unit === "B" ? Math.round(count) : count.toFixed(1)} ${unit}`;
    count /= 1024;
  }
}

/** A number as people read it: 1,234,567 or 0.25. */
export const figure = (n) => (n === null || n === undefined ? "" : n.toLocaleString("en", { maximumFractionDigits: Math.abs(n) < 10 ? 2 : Math.abs(n) < 100 ? 1 : 0 }));
export const percent = (share) => (share === undefined || share === null ? "" : `${figure(share * 100)} %`);
export const plural = (n, word) => `${figure(n)} ${word}${n === 1 ? "" : "s"}`;
export const pretty = (value) => JSON.stringify(value, null, 2);

/** The bytes of a key as the API tells it: text, or {"b64"}. */
function keyBytes(key) {
  if (key === null || key === undefined) return [];
  if (typeof key === "string") return [...new TextEncoder().encode(key)];
  return [...atob(key.b64)].map((c) => c.charCodeAt(0));
}

const visible = (raw) =>
  raw.map((b) => (b >= 32 && b < 127 && b !== 92 ? String.fromCharCode(b) : `\\x${b.toString(16).padStart(2, "0")}`)).join("");

export const userKey = (key) => (key === null || key === undefined ? "" : visible(keyBytes(key)));

/** A storage key: the table's id in four bytes, then the user's key. */
export function place(key, tables, isEnd) {
  const raw = keyBytes(key);
  if (!raw.length) return isEnd ? "the end" : "the beginning";
  const id = raw.slice(0, 4).reduce((n, b) => n * 256 + b, 0);
  const rest = raw.slice(4);
  if (isEnd && !rest.length && tables.has(id - 1)) return `the end of ${tables.get(id - 1)}`;
  const name = tables.get(id) || `table ${id}`;
  return rest.length ? `${name} ${visible(rest)}` : name;
}

/** Every word of the text must be somewhere in the row. */
export function matches(text, ...fields) {
  const all = fields.map((f) => (typeof f === "string" ? f : JSON.stringify(f) || "")).join(" ").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

// ------------------------------------------------------------------------------------ parts of pages
/** The same without columns in which there is nothing. */
export function withoutEmpty(columns, rows) {
  const used = columns.map((_, i) => rows.some((cells) => flat(cells[i]).length > 0));
  return [columns.filter((_, i) => used[i]), rows.map((cells) => cells.filter((_, i) => used[i]))];
}

/** columns: [[title, kind], …], kind "number", "tight" or ""; rows: lists of cells. `none`: what is
 * said if there are none: text, or elements that tell what to do. */
export function tableOf(columns, rows, none, rowClass) {
  if (!rows.length) return el("div", { class: "empty" }, none);
  const cut = rows.length > ROWS_MAX;
  return el(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": columns.map(([title]) => title).filter((title) => title).join(", ") },
    el(
      "table", {},
      el("thead", {}, el("tr", {}, columns.map(([title, kind]) => el("th", { class: kind, scope: "col" }, title)))),
      el("tbody", {}, rows.slice(0, ROWS_MAX).map((cells, n) =>
        el("tr", { class: rowClass && rowClass(n) }, cells.map((cell, i) => el("td", { class: columns[i][1] }, cell))))),
    ),
    cut && el("p", { class: "faint" }, `The first ${ROWS_MAX} of ${figure(rows.length)}.`),
  );
}

export const pairs = (list) => el("dl", {}, list.filter(([, v]) => v !== "" && v !== null && v !== undefined && v !== false)
  .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

/** Figures side by side: [{label, value, about, level, href}, …]. */
export const tiles = (list, many) => el("div", { class: `tiles ${many || ""}` }, list.map(({ label, value, about, title, level, href, current }) =>
  el(href ? "a" : "div", { class: `tile ${level || ""}`, href, title, "aria-current": current && "true" },
    el("span", { class: "label" }, label), el("strong", {}, value), about && el("span", { class: "faint" }, about))));

export const badge = (text, level) => el("span", { class: `state ${level || ""}` }, text);
export const empty = (title, ...more) => [el("strong", {}, title), el("p", {}, more)];
export const code = (text) => el("code", {}, text);
export const linkTo = (id) => el("a", { href: `#/procedures/${id}` }, id);
export const card = (title, ...children) => el("section", { class: "card" }, title && el("h2", {}, title), children);
