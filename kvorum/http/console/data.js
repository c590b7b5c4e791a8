// Data and SQL: what databases, tables, columns and indexes there are, rows by pages, an editor with
// results and plans. Everything goes through POST /v1/sql, as who is logged in, with limits.

import { ask, Refusal, session, wordsOf } from "./api.js";
import { badge, card, code, duration, el, empty, figure, plural, tableOf } from "./dom.js";

const ROWS = 100; // of a table on a page
const HISTORY_MAX = 50;
const PATIENCE_MS = 65000; // a statement may take 60 s

const quoted = (name) => `"${String(name).replaceAll('"', '""')}"`;
const literal = (text) => `'${String(text).replaceAll("'", "''")}'`;

const run = (database, statement, more = {}) => ask("v1/sql", { database, statement, ...more }, { patience: PATIENCE_MS });

/** Rows as objects by the names of their columns. */
async function rowsOf(database, statement) {
  const { columns, rows } = await run(database, statement, { rows_max: 1000 });
  return rows.map((row) => Object.fromEntries(columns.map(({ name }, i) => [name, row[i]])));
}

// ------------------------------------------------------------------------------------- history
// In this browser only; nothing of it is sent anywhere.
const HISTORY = () => `kvorum.sql.${session.user}`;
function history() {
  try {
    return JSON.parse(localStorage.getItem(HISTORY())) || [];
  } catch {
    return [];
  }
}
function remember(database, statement) {
  const others = history().filter((one) => one.statement !== statement || one.database !== database);
  try {
    localStorage.setItem(HISTORY(), JSON.stringify([{ database, statement, at: Date.now() }, ...others].slice(0, HISTORY_MAX)));
  } catch {
    // there is no room for it: it is not needed
  }
}

// ------------------------------------------------------------------------------------- answers
export function resultGrid({ columns, rows, tag, took_ms, more, notices }) {
  return [
    el("p", { class: "faint", role: "status", id: "tag" }, `${tag || "Done"} · ${duration(took_ms)}`, more && ` · only the first ${plural(rows.length, "row")} are shown`),
    (notices || []).map((one) => el("p", { class: "warn" }, `${one.severity}: ${one.message}`)),
    columns.length > 0 && tableOf(
      columns.map(({ name, type }) => [[name, " ", el("span", { class: "type" }, type)], /int|numeric|float|double|real|decimal|serial/.test(type) ? "number" : ""]),
      rows.map((row) => row.map((value) => (value === null ? el("span", { class: "null" }, "null") : value))),
      "No rows.",
    ),
  ];
}

/** An error of a statement, with the place in it. */
function sqlError(error, statement) {
  if (!(error instanceof Refusal)) return el("p", { class: "bad", role: "alert", id: "sqlerror" }, error.name === "AbortError" ? "Stopped: nobody waits for it any more." : wordsOf(error));
  const { sqlstate, position, detail, hint } = error.details;
  const parts = [el("p", {}, el("strong", {}, sqlstate || error.code), ` ${error.message}`)];
  if (position) {
    const chars = [...statement];
    const before = chars.slice(0, position - 1).join("");
    const line = before.split("\n").length, column = before.length - before.lastIndexOf("\n");
    const text = statement.split("\n")[line - 1] || "";
    parts.push(el("pre", {}, `line ${line}, column ${column}\n${text}\n${" ".repeat(Math.max(0, column - 1))}^`));
  }
  if (detail) parts.push(el("p", {}, detail));
  if (hint) parts.push(el("p", {}, `Hint: ${hint}`));
  return el("div", { class: "problem", role: "alert", id: "sqlerror" }, parts);
}

const READ = /(\d+) gets, (\d+) rows in \d+ pages, \d+ versions(?:, ([\d.]+) ms)?/;
const SHOWN = new Set(["Node Type", "Plans", "Relation Name", "Alias", "Index Name", "Actual Rows", "Plan Rows", "Actual Total Time", "Scan Direction", "Operation"]);

/** What a node of a plan had to do with: rows, those that were expected, ms. */
function costOf(node, total) {
  const read = READ.exec([node.Read || ""].flat()[0] || "");
  const rows = node["Actual Rows"] ?? (read ? Math.max(Number(read[1]), Number(read[2])) : undefined); // rows of an index are got then
  return { rows, expected: node["Plan Rows"], time: node["Actual Total Time"] ?? (read && read[3] ? Number(read[3]) : total) };
}

/** A plan of EXPLAIN (FORMAT JSON) as a tree, with bars of the time that its parts took; without
 * times, of their rows. */
export function planTree([whole]) {
  const total = whole["Execution Time"];
  const costs = new Map();
  const walk = (node, time) => {
    costs.set(node, costOf(node, time));
    for (const below of node.Plans || []) walk(below);
  };
  walk(whole.Plan, total);
  const most = (field) => Math.max(0, ...[...costs.values()].map((one) => one[field] ?? 0));
  const slowest = most("time"), longest = Math.max(most("rows"), most("expected"));
  const draw = (node) => {
    const { rows, expected, time } = costs.get(node);
    const part = time !== undefined ? time / (slowest || 1) : (rows ?? expected ?? 0) / (longest || 1);
    const words = [rows !== undefined && plural(rows, "row"), expected !== undefined && `${figure(expected)} expected`, time !== undefined && `${figure(time)} ms`].filter((one) => one);
    return el(
      "li", {},
      el(
        "div", { class: "plan" },
        words.length > 0 && el("span", { class: "cost" }, el("progress", { max: 1, value: part, "aria-label": time !== undefined ? "share of the time" : "share of the rows" }), words.join(" · ")),
        el("strong", {}, node.Operation || node["Node Type"]), node["Index Name"] && [" using ", code(node["Index Name"])], node["Relation Name"] && [" on ", code(node["Relation Name"])],
        el("dl", {}, Object.entries(node).filter(([name]) => !SHOWN.has(name)).map(([name, value]) => [el("dt", {}, name), el("dd", {}, Array.isArray(value) ? value.join("\n") : String(value))])),
      ),
      node.Plans && el("ul", {}, node.Plans.map(draw)),
    );
  };
  return el("div", { id: "plan" }, total !== undefined && el("p", { class: "faint" }, `It took ${figure(total)} ms.`), el("ul", { class: "plantree" }, draw(whole.Plan)));
}

// ------------------------------------------------------------------------------------- the page
export function dataPage(_first, told, path) {
  const [database = "", schema = "", table = ""] = path;
  let databases = null;
  const tree = el("nav", { class: "tree", id: "tree", "aria-label": "Tables" }, el("p", { class: "faint" }, "Asking …"));
  const answer = el("div", { id: "answer" });
  const where = el("select", { id: "database", "aria-label": "database", onchange: () => { location.hash = `#/data/${encodeURIComponent(where.value)}`; } });
  const text = el("textarea", { id: "sql", rows: 6, spellcheck: "false", "aria-label": "SQL statement", placeholder: "SELECT … (Ctrl+Enter runs it)" });
  const writes = el("input", { type: "checkbox", id: "writes" });
  const past = el("select", { id: "history", "aria-label": "statements that you ran", onchange: () => {
    const one = history()[Number(past.value)];
    if (one) text.value = one.statement;
    past.value = "";
  } });
  const most = el("select", { id: "most", "aria-label": "rows at most" }, [100, 500, 1000].map((n) => el("option", { value: n }, `${n} rows`)));
  const buttons = {
    run: el("button", { id: "run", class: "main", onclick: () => send((s) => s) }, "Run"),
    explain: el("button", { id: "explain", onclick: () => send((s) => `EXPLAIN (FORMAT JSON) ${s}`, true) }, "Explain"),
    analyze: el("button", { id: "analyze", title: "Runs it, and shows what that took", onclick: () => send((s) => `EXPLAIN (ANALYZE, FORMAT JSON) ${s}`, true) }, "Explain and run"),
    stop: el("button", { id: "stop", disabled: true, onclick: () => stopping && stopping.abort() }, "Stop"),
  };
  let stopping = null;
  text.value = sessionStorage.getItem("kvorum.sql.draft") || "";
  text.addEventListener("input", () => sessionStorage.setItem("kvorum.sql.draft", text.value));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send((s) => s);
    }
  });

  function listPast() {
    past.replaceChildren(el("option", { value: "" }, "history"), ...history().map((one, i) => el("option", { value: i }, one.statement.replace(/\s+/g, " ").slice(0, 80))));
  }

  /** Runs what is marked, or all of it. */
  async function send(made, isPlan) {
    const marked = text.value.slice(text.selectionStart, text.selectionEnd).trim();
    const own = (marked || text.value).trim();
    if (!own || stopping) return;
    const statement = made(own);
    stopping = new AbortController();
    for (const name of ["run", "explain", "analyze"]) buttons[name].disabled = true;
    buttons.stop.disabled = false;
    answer.replaceChildren(el("p", { class: "faint", role: "status" }, "It runs …"));
    if (!isPlan) remember(where.value, own);
    try {
      const body = { database: where.value, statement, rows_max: Number(most.value), read_only: !writes.checked };
      const got = await ask("v1/sql", body, { patience: PATIENCE_MS, signal: stopping.signal });
      answer.replaceChildren(...[isPlan ? planTree(JSON.parse(got.rows.map((row) => row[0]).join("\n"))) : resultGrid(got)].flat(Infinity).filter((one) => one));
    } catch (error) {
      const ahead = [...statement].length - [...own].length; // EXPLAIN was put in front
      if (error instanceof Refusal && error.details.position) error.details.position -= ahead;
      answer.replaceChildren(sqlError(error, own));
    }
    stopping = null;
    for (const name of ["run", "explain", "analyze"]) buttons[name].disabled = false;
    buttons.stop.disabled = true;
    listPast();
  }

  async function fill() {
    try {
      databases = (await rowsOf("", "SELECT datname FROM pg_database ORDER BY datname")).map((one) => one.datname);
      const chosen = databases.includes(database) ? database : databases.includes("default") ? "default" : databases[0];
      where.replaceChildren(...databases.map((name) => el("option", { value: name, selected: name === chosen }, name)));
      const found = await rowsOf(chosen, "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema', 'kvorum') ORDER BY 1, 2");
      const schemas = [...new Set(found.map((one) => one.table_schema))];
      tree.replaceChildren(...(found.length ? schemas.map((space) => el(
        "div", {}, el("h3", {}, space),
        el("ul", {}, found.filter((one) => one.table_schema === space).map((one) => el("li", {}, el("a", {
          href: `#/data/${[chosen, space, one.table_name].map(encodeURIComponent).join("/")}`, "aria-current": space === schema && one.table_name === table && "page",
        }, one.table_name, one.table_type === "VIEW" && el("span", { class: "type" }, " view"))))),
      )) : [el("div", { class: "empty" }, empty("No tables", "Make one here: ", code("CREATE TABLE t (id int PRIMARY KEY, …)"), " with “may write” ticked."))]));
      if (table) await showTable(chosen, schema, table);
    } catch (error) {
      tree.replaceChildren(sqlError(error, ""));
    }
  }

  async function showTable(base, space, name) {
    const about = el("div", { id: "about" });
    const grid = el("div", { id: "rows" });
    let offset = 0;
    const newer = el("button", { id: "rows-back", disabled: true, onclick: () => page(-ROWS) }, "Previous");
    const older = el("button", { id: "rows-on", disabled: true, onclick: () => page(ROWS) }, "Next");
    const full = `${quoted(space)}.${quoted(name)}`;
    answer.replaceChildren(
      el("h2", {}, `${space}.${name}`), about,
      el("div", { class: "bar" }, el("h2", {}, "Rows"), el("span", { class: "pager" }, newer, older), el("button", { onclick: () => { text.value = `SELECT * FROM ${full} LIMIT 100`; text.focus(); } }, "Query it")), grid,
    );
    const columns = await rowsOf(base, `SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns WHERE table_schema = ${literal(space)} AND table_name = ${literal(name)} ORDER BY ordinal_position`);
    const indexes = await rowsOf(base, `SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = ${literal(space)} AND tablename = ${literal(name)} ORDER BY indexname`);
    const keys = await rowsOf(base, `SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) WHERE i.indisprimary AND i.indrelid = ${literal(full)}::regclass`).catch(() => []);
    const primary = keys.map((one) => one.attname);
    about.replaceChildren(
      tableOf([["column", ""], ["type", ""], ["", "tight"], ["default", ""]], columns.map((one) => [one.column_name, one.data_type, [primary.includes(one.column_name) && badge("key", "good"), one.is_nullable === "NO" && !primary.includes(one.column_name) && "not null"], one.column_default ? code(one.column_default) : ""]), "It has no columns."),
      ...(indexes.length ? [el("h3", {}, "Indexes"), tableOf([["name", ""], ["what", ""]], indexes.map((one) => [one.indexname, code(one.indexdef)]), "")] : []),
    );
    async function page(step) {
      offset = Math.max(0, offset + step);
      const order = primary.length ? ` ORDER BY ${primary.map(quoted).join(", ")}` : "";
      try {
        const got = await run(base, `SELECT * FROM ${full}${order} LIMIT ${ROWS + 1} OFFSET ${offset}`, { rows_max: ROWS + 1 });
        older.disabled = got.rows.length <= ROWS;
        newer.disabled = offset === 0;
        const rows = got.rows.slice(0, ROWS);
        const tag = rows.length ? `rows ${figure(offset + 1)} to ${figure(offset + rows.length)}` : "no rows";
        grid.replaceChildren(...resultGrid({ ...got, rows, tag }).flat(Infinity).filter((one) => one));
      } catch (error) {
        grid.replaceChildren(sqlError(error, ""));
      }
    }
    await page(0);
  }

  listPast();
  fill();
  return {
    title: "Data and SQL",
    fixed: el(
      "div", { class: "split" },
      el("aside", {}, el("label", { class: "stack" }, "Database", where), tree),
      el("div", {}, card(null,
        text,
        el("div", { class: "bar" }, buttons.run, buttons.explain, buttons.analyze, buttons.stop, most, past, el("label", { title: "Without it the statement runs in a read-only transaction" }, writes, " may write"))),
      answer),
    ),
    live: null,
  };
}
