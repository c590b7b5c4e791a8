// A worker of Kvorum in one page: it leases tasks over HTTP, runs them, and commits what came out.
// The protocol is docs/reference/worker-protocol.md; made of worker.ts.

/** What the server refused, by its code. TASK_LOST: the task is another worker's now. */
export class Refused extends Error {
  code;
  constructor(code, message) { super(message); this.code = code; }
}

/** One execution of a step: what it was given, and what is committed with its outcome. */
export class Task {
  given;
  state;
  ask;
  writes = [];
  emits = [];
  constructor(given, ask) { this.given = given; this.state = given.state; this.ask = ask; }
  get args() { return this.given.args; }
  get token() { return this.given.token; }
  put(ns, table, key, value, more = {}) {
    this.writes.push({ op: "put", ns, table, key, value, ...more });
  }
  delete(ns, table, key, more = {}) {
    this.writes.push({ op: "delete", ns, table, key, ...more });
  }
  emit(name, value = null) { this.emits.push({ name, value }); }
  heartbeat(details = null) { return this.ask("heartbeat", { details }); }
  get(ns, table, key) { return this.ask("read", { ns, table, key }); }
  receive(signal) { return this.ask("read", { signal }); }
}

export const next = (step) => ({ do: "next", step });
export const done = (result = null) => ({ do: "done", result });
export const again = (delay_ms = 0) => ({ do: "again", delay_ms });
export const fail = (code, message) => ({ do: "fail", code, message });
export const untilSignal = (signal, then, timeout_ms = 0) =>
  ({ do: "suspend", signal, then, timeout_ms });

export class Worker {
  options;
  types;
  steps;
  running = new Map(); // by task, until its end is answered
  stopped = false;
  constructor(options, types, steps) {
    this.options = options; this.types = types; this.steps = steps;
  }

  async ask(path, body) {
    const { url, pool, worker, token } = this.options;
    const headers = { "content-type": "application/json" };
    if (token) headers.authorization = `Bearer ${token}`;
    const said = JSON.stringify({ worker, ...body });
    const answer = await fetch(`${url}/v1/pools/${pool}/${path}`, { method: "POST", headers, body: said });
    const found = await answer.json();
    const later = answer.status >= 500 || answer.status === 429; // not now: to be asked again
    if (later) throw new Error(found.error.message);
    if (!answer.ok) throw new Refused(found.error.code, found.error.message);
    return found;
  }

  /** Lease and run tasks until `stop`. Asking for more says that this worker lives. */
  async run() {
    const slots = this.options.slots ?? 4;
    let types = this.types;
    while (!this.stopped) {
      try {
        const take = slots - this.running.size;
        const have = [...this.running.keys()]; // what it was given besides was lost on its way
        const leased = await this.ask("lease", { types, slots, take, have, wait_ms: take ? 1000 : 0 });
        types = undefined;
        for (const given of leased.tasks) this.begin(given);
        if (!take) await Promise.race([...this.running.values(), new Promise((go) => setTimeout(go, 1000))]);
      } catch (error) {
        if (error.code === "WORKER_UNKNOWN") types = this.types;
        else await new Promise((go) => setTimeout(go, 500)); // the node is not there: ask again
      }
    }
    await Promise.all(this.running.values());
    await this.ask("leave", {});
  }

  stop() { this.stopped = true; }

  begin(given) {
    if (this.running.has(given.task)) return;
    const work = this.work(given).catch(() => {}).finally(() => this.running.delete(given.task));
    this.running.set(given.task, work);
  }

  async work(given) {
    const task = new Task(given, (what, body) => this.ask(`tasks/${given.task}/${what}`, body));
    let how = "commit";
    let said;
    try {
      const outcome = await this.steps[`${given.type}.${given.step}`](task);
      said = { state: task.state, writes: task.writes, emits: task.emits };
      if (given.kind === "step") said.outcome = outcome;
    } catch (error) {
      how = "fail";
      said = { code: String(error.code ?? "STEP_ERROR"), message: String(error.message ?? error) };
    }
    for (let attempt = 0; attempt < 10; attempt++) {
      try {
        await task.ask(how, said);
        return;
      } catch (error) { // what is refused fails the step, if that has not failed already: TASK_LOST
        if (!(error instanceof Refused)) await new Promise((go) => setTimeout(go, 500)); // ask again
        else if (how === "fail" || error.code === "TASK_LOST") return;
        else [how, said] = ["fail", { code: error.code, message: error.message }];
      }
    }
  }
}
