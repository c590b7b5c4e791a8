// node example.mjs http://127.0.0.1:7072 NAME: a worker of the procedures ts.transfer and ts.count.
import { Worker, done, fail, next, untilSignal } from "./worker.mjs";

const [url, worker, token] = process.argv.slice(2);
const number = (row) => Number(row.value ?? "0");

const types = [
  {
    name: "ts.transfer",
    steps: [{ name: "take", undo: "give_back" }, { name: "approved" }, { name: "give" }],
    undos: ["give_back"],
  },
  { name: "ts.count", steps: [{ name: "work", heartbeat_ms: 60000, retry: { attempts: 5, first_ms: 10 } }] },
];

async function add(task, account, amount) {
  const row = await task.get("default", "accounts", account);
  const cond = row.version ? { if_version: row.version } : { if_absent: true };
  task.put("default", "accounts", account, String(number(row) + amount), cond);
}

const steps = {
  "ts.transfer.take": async (task) => {
    const row = await task.get("default", "accounts", task.args.from);
    if (number(row) < task.args.amount) return fail("TOO_LITTLE", `there is only ${number(row)}`);
    await add(task, task.args.from, -task.args.amount);
    task.state.token = task.token;
    task.emit("taken", task.args.amount);
    return task.args.approved ? next("give") : untilSignal("approval", "approved");
  },
  "ts.transfer.approved": async (task) => {
    const signal = await task.receive("approval");
    if (!signal.taken) return untilSignal("approval", "approved");
    return signal.payload ? next("give") : fail("NOT_APPROVED", "somebody said no");
  },
  "ts.transfer.give": async (task) => {
    await add(task, task.args.to, task.args.amount);
    return done({ moved: task.args.amount, token: task.state.token });
  },
  "ts.transfer.give_back": async (task) => add(task, task.args.from, task.args.amount),
  "ts.count.work": async (task) => {
    const begun = task.given.last_heartbeat ?? 0;
    for (let i = begun; i < task.args.to; i++) {
      await new Promise((go) => setTimeout(go, task.args.ms));
      await task.heartbeat(i + 1);
      if (task.args.breaks === i + 1 && begun === 0) throw new Error("broke");
    }
    await add(task, task.args.key, 1);
    return done({ begun, worker });
  },
};

const running = new Worker({ url, pool: "typescript", worker, token, slots: 4 }, types, steps);
process.on("SIGTERM", () => running.stop());
console.log("ready");
await running.run();
