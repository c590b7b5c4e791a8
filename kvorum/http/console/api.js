// Requests of the API, and who asks. Pages import this; console.js fills in who is logged in.

const PATIENCE_MS = 15000; // of one request
const TABLES_MS = 30000; // names of tables change seldom

/** `me`: as console/session says, null: nobody. `ended`, `refresh`: console.js sets them. */
export const session = { me: null, ended: () => {}, refresh: () => {}, get user() { return this.me && this.me.user; } };
let names = { at: -Infinity, user: null, tables: new Map() };

export class Refusal extends Error {
  constructor(status, told) {
    super(told.message);
    this.status = status;
    this.code = told.code;
    this.details = told.details || {};
  }
}

/** One request; raises Refusal with its words, or an error of the network. `body` makes it a POST,
 * `options.method` something else; `options.patience` in ms. */
export async function ask(path, body, { method, patience = PATIENCE_MS, signal } = {}) {
  const signals = [AbortSignal.timeout(patience), ...(signal ? [signal] : [])];
  const options = { signal: AbortSignal.any(signals), headers: { accept: "application/json" } };
  if (body !== undefined || method) {
    options.method = method || "POST";
    if (session.me && session.me.csrf) options.headers["x-kvorum-csrf"] = session.me.csrf;
  }
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  const told = await answer.json();
  if (answer.status === 401 && session.me) session.ended("Your session has ended: log in again.");
  if (!answer.ok) throw new Refusal(answer.status, told.error);
  return told;
}

/** An error in words. */
export const wordsOf = (error) => (error instanceof Refusal ? `${error.code}: ${error.message}`
  : error.name === "TimeoutError" ? "the node has not answered in time" : `the node does not answer (${error.message})`);

export const known = () => session.me !== null && session.me.credential !== "loopback";
export const sees = (page) => session.me !== null && session.me.pages.includes(page);

export const query = (values) => {
  const set = Object.entries(values).filter(([, value]) => value);
  return set.length ? `?${new URLSearchParams(set)}` : "";
};

const unless = (status) => (error) => {
  if (error instanceof Refusal && error.status === status) return null;
  throw error;
};
export const gone = unless(404);
export const forbidden = unless(403);

/** Whether who asks may act on procedures of a type: {operates, submits}. */
export const rightsTo = (type) => ask(`console/session${query({ of: type })}`);

export async function tableNames() {
  if (performance.now() - names.at < TABLES_MS && names.user === session.user) return names.tables;
  const tables = new Map();
  if (!sees("cluster")) return tables; // these are told by their ids
  const spaces = (await ask("v1/namespaces")).items;
  const lists = await Promise.all(spaces.map((ns) => ask(`v1/namespaces/${encodeURIComponent(ns.name)}/tables`).catch(gone)));
  spaces.forEach((ns, i) => {
    for (const table of (lists[i] || { items: [] }).items) tables.set(table.id, `${ns.name}.${table.name}`);
  });
  names = { at: performance.now(), user: session.user, tables };
  return tables;
}
