// A worker of Kvorum in one page: it leases tasks over HTTP, runs them, and commits what came out.
// The protocol is docs/reference/worker-protocol.md; worker.mjs is this file without its types.
type Json = any;
type Step = (task: Task) => Promise<Outcome>;
type Steps = { [name: string]: Step };
interface Outcome { do: string; [field: string]: Json }
interface Declared { name: string; steps: Json[]; undos?: string[]; [field: string]: Json }
interface Options { url: string; pool: string; worker: string; token?: string; slots?: number }

/** What the server refused, by its code. TASK_LOST: the task is another worker's now. */
export class Refused extends Error {
  code: string;
  constructor(code: string, message: string) { super(message); this.code = code; }
}

/** One execution of a step: what it was given, and what is committed with its outcome. */
export class Task {
  given: Json;
  state: Json;
  ask: Json;
  writes: Json[] = [];
  emits: Json[] = [];
  constructor(given: Json, ask: Json) { this.given = given; this.state = given.state; this.ask = ask; }
  get args(): Json { return this.given.args; }
  get token(): string { return this.given.token; }
  put(ns: string, table: string, key: string, value: string, more: Json = {}): void {
    this.writes.push({ op: "put", ns, table, key, value, ...more });
  }
  delete(ns: string, table: string, key: string, more: Json = {}): void {
    this.writes.push({ op: "delete", ns, table, key, ...more });
  }
  emit(name: string, value: Json = null): void { this.emits.push({ name, value }); }
  heartbeat(details: Json = null): Promise<Json> { return this.ask("heartbeat", { details }); }
  get(ns: string, table: string, key: string): Promise<Json> { return this.ask("read", { ns, table, key }); }
  receive(signal: string): Promise<Json> { return this.ask("read", { signal }); }
}

export const next = (step: string): Outcome => ({ do: "next", step });
export const done = (result: Json = null): Outcome => ({ do: "done", result });
export const again = (delay_ms: number = 0): Outcome => ({ do: "again", delay_ms });
export const fail = (code: string, message: string): Outcome => ({ do: "fail", code, message });
export const untilSignal = (signal: string, then: string, timeout_ms: number = 0): Outcome =>
  ({ do: "suspend", signal, then, timeout_ms });

export class Worker {
  options: Options;
  types: Declared[];
  steps: Steps;
  running: Json = new Map(); // by task, until its end is answered
  stopped: boolean = false;
  constructor(options: Options, types: Declared[], steps: Steps) {
    this.options = options; this.types = types; this.steps = steps;
  }

  async ask(path: string, body: Json): Promise<Json> {
    const { url, pool, worker, token } = this.options;
    const headers: Json = { "content-type": "application/json" };
    if (token) headers.authorization = `Bearer ${token}`;
    const said = JSON.stringify({ worker, ...body });
    const answer = await fetch(`${url}/v1/pools/${pool}/${path}`, { method: "POST", headers, body: said });
    const found: Json = await answer.json();
    const later = answer.status >= 500 || answer.status === 429; // not now: to be asked again
    if (later) throw new Error(found.error.message);
    if (!answer.ok) throw new Refused(found.error.code, found.error.message);
    return found;
  }

  /** Lease and run tasks until `stop`. Asking for more says that this worker lives. */
  async run(): Promise<void> {
    const slots = this.options.slots ?? 4;
    let types: Declared[] | undefined = this.types;
    while (!this.stopped) {
      try {
        const take = slots - this.running.size;
        const have = [...this.running.keys()]; // what it was given besides was lost on its way
        const leased = await this.ask("lease", { types, slots, take, have, wait_ms: take ? 1000 : 0 });
        types = undefined;
        for (const given of leased.tasks) this.begin(given);
        if (!take) await Promise.race([...this.running.values(), new Promise((go: Json) => setTimeout(go, 1000))]);
      } catch (error: Json) {
        if (error.code === "WORKER_UNKNOWN") types = this.types;
        else await new Promise((go) => setTimeout(go, 500)); // the node is not there: ask again
      }
    }
    await Promise.all(this.running.values());
    await this.ask("leave", {});
  }

  stop(): void { this.stopped = true; }

  begin(given: Json): void {
    if (this.running.has(given.task)) return;
    const work = this.work(given).catch(() => {}).finally(() => this.running.delete(given.task));
    this.running.set(given.task, work);
  }

  async work(given: Json): Promise<void> {
    const task: Task = new Task(given, (what: string, body: Json) => this.ask(`tasks/${given.task}/${what}`, body));
    let how: string = "commit";
    let said: Json;
    try {
      const outcome: Json = await this.steps[`${given.type}.${given.step}`](task);
      said = { state: task.state, writes: task.writes, emits: task.emits };
      if (given.kind === "step") said.outcome = outcome;
    } catch (error: Json) {
      how = "fail";
      said = { code: String(error.code ?? "STEP_ERROR"), message: String(error.message ?? error) };
    }
    for (let attempt = 0; attempt < 10; attempt++) {
      try {
        await task.ask(how, said);
        return;
      } catch (error: Json) { // what is refused fails the step, if that has not failed already: TASK_LOST
        if (!(error instanceof Refused)) await new Promise((go: Json) => setTimeout(go, 500)); // ask again
        else if (how === "fail" || error.code === "TASK_LOST") return;
        else [how, said] = ["fail", { code: error.code, message: error.message }];
      }
    }
  }
}
