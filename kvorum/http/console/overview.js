// The first page: is everything well, what needs a hand, and the last hour as pictures.

import { ask, session, tableNames } from "./api.js";
import { heat, lines, widthOf } from "./charts.js";
import { badge, bytes, card, duration, el, empty, figure, percent, place, plural, tiles } from "./dom.js";

const HOUR_MS = 3600000;
const SHORTEST_MS = 300000; // what the pictures of a young cluster show at least
const HOUR_EVERY_MS = 15000; // a node takes a sample so often
const COLUMNS_MAX = 60; // of the heat map; none is shorter than a sample
const RANGES = 12;
const LEVELS = { bad: "Act now", warn: "Soon", note: "To know" };
let kept = { at: -Infinity, user: null, hours: new Map(), partitions: [], tables: new Map() };

/** The samples of all nodes; only what is new is asked for. */
async function lastHour() {
  if (kept.user !== session.user) kept = { at: -Infinity, user: session.user, hours: new Map(), partitions: [], tables: new Map() };
  if (performance.now() - kept.at < HOUR_EVERY_MS) return kept;
  const known = [...kept.hours.values()].flatMap(({ samples }) => samples.slice(-1)).map(([ms]) => ms);
  const after = known.length ? Math.max(0, Math.min(...known) - 60000) : 0;
  const [told, found, tables] = await Promise.all([ask(`v1/hour?after_ms=${after}`), ask("v1/partitions"), tableNames()]);
  for (const { node, samples } of told.items) {
    const before = kept.hours.get(node) || { samples: [] };
    const newest = before.samples.length ? before.samples[before.samples.length - 1][0] : 0;
    kept.hours.set(node, { samples: [...before.samples, ...samples.filter(([ms]) => ms > newest)].slice(-300) });
  }
  Object.assign(kept, { at: performance.now(), partitions: found.items, tables });
  return kept;
}

const of = (samples, column, from) => samples.filter(([ms]) => ms >= from).map((one) => [one[0], one[column]]);

/** When the pictures begin: an hour ago, or when the first sample was taken. */
function beginning({ hours }, to) {
  const first = [...hours.values()].flatMap(({ samples }) => samples.slice(0, 1)).map(([ms]) => ms);
  return Math.max(to - HOUR_MS, Math.min(to - SHORTEST_MS, ...first));
}

/** The sum over nodes in steps of a sample: they do not take theirs at the same moment. */
function summed(hours, column, from, to) {
  const step = HOUR_EVERY_MS, sums = new Map();
  for (const { samples } of hours.values()) {
    for (const one of samples) if (one[0] >= from) {
      const slot = Math.floor(one[0] / step) * step;
      sums.set(slot, (sums.get(slot) || 0) + one[column]);
    }
  }
  return [...sums].sort(([a], [b]) => a - b).filter(([ms]) => ms <= to - step / 2 || sums.size < 3);
}

function pictures({ hours }, from, to) {
  const width = widthOf(2);
  const none = empty("No samples yet", "Every node takes one each 15 seconds: the first line shows after half a minute.");
  const nodes = [...hours].sort(([a], [b]) => a - b);
  const each = (column) => nodes.map(([node, { samples }]) => ({ name: `node ${node}`, points: of(samples, column, from) }));
  const ms = (v) => duration(v);
  return el(
    "div", { class: "grid" },
    lines({ id: "load", title: "Requests per second", width, from, to, none, series: [{ name: "reads", points: summed(hours, 1, from, to) }, { name: "writes", points: summed(hours, 2, from, to) }] }),
    lines({ id: "latency", title: "Log sync, 99th percentile (each write waits for one)", width, from, to, none: nodes.length ? empty("Nothing was written", "Without writes the log is not synced.") : none, format: ms, series: each(5) }),
    lines({ id: "lag", title: "Replication lag, log entries behind", width, from, to, none, series: each(7) }),
    lines({ id: "cpu", title: "Processor, share of a core", width, from, to, none, format: percent, series: each(8) }),
  );
}

/** Units per second by partition and time; the busiest in the hour come first. */
function heatMap({ hours, partitions, tables }, from, to) {
  const width = widthOf(1), sums = new Map(), span = to - from;
  const columns = Math.min(COLUMNS_MAX, Math.floor(span / HOUR_EVERY_MS));
  for (const { samples } of hours.values()) {
    for (const one of samples) {
      const column = Math.floor(((one[0] - from) / span) * columns);
      if (column < 0 || column >= columns) continue;
      for (const [partition, units] of one[9]) {
        const cells = sums.get(partition) || new Array(columns).fill(0);
        cells[column] += (units * HOUR_EVERY_MS) / (span / columns);
        sums.set(partition, cells);
      }
    }
  }
  const about = new Map(partitions.map((one) => [one.id, one]));
  const total = (cells) => cells.reduce((sum, n) => sum + n, 0);
  const busiest = [...sums].sort((a, b) => total(b[1]) - total(a[1])).slice(0, RANGES);
  const rows = busiest.map(([id, cells]) => {
    const one = about.get(id);
    const label = !one ? `partition ${id}` : one.start ? place(one.start, tables, false) : "the system's tables";
    return { label, title: one ? `partition ${id}: ${label} up to ${place(one.end, tables, true)}` : `${label} (not there any more)`, cells };
  });
  return heat({
    title: "Hot key ranges", rows, from, to, width, format: figure,
    none: empty("Nothing is hot", "Ranges of keys show here as soon as they are read or written."),
  });
}

function attention(found) {
  return card(
    found.length ? `${plural(found.length, "thing")} to look at` : null,
    found.length
      ? el("ul", { class: "findings", id: "attention" }, found.map((one) => el(
        "li", { class: one.level },
        el("span", { class: "level" }, LEVELS[one.level]),
        el("div", {}, el("strong", {}, one.title), " ", el("span", { class: "faint" }, one.text), el("p", {}, one.do)),
        el("a", { class: "button", href: `#/${one.page}`, "aria-label": `Show: ${one.title}` }, "Show"),
      )))
      : el("div", { class: "empty good", id: "attention" }, empty("Nothing needs attention", "Nodes, partitions, procedures, locks, certificates and backups are as they should be.")),
  );
}

function nodeCards(nodes, hours) {
  return el("div", { class: "nodes" }, nodes.filter((one) => one.state !== "gone").map((one) => {
    const dead = one.state === "down" || one.health === "dead";
    const level = dead ? "bad" : one.state !== "live" || one.health === "suspect" ? "warn" : "good";
    const samples = (hours.get(one.id) || { samples: [] }).samples;
    const last = samples[samples.length - 1];
    return el(
      "a", { class: `node ${dead ? "dead" : ""}`, href: "#/nodes", "data-node": one.id },
      el("strong", {}, `Node ${one.id}`), badge(dead ? (one.heard_ms ? `dead for ${duration(one.heard_ms)}` : "down") : one.health === "suspect" ? "silent" : one.state, level),
      el("span", { class: "faint" }, one.address || "in this process", one.witness && ", witness"),
      el("span", { class: "faint" }, dead ? `its ${plural(one.replicas, "replica")} are missing` : `leads ${one.leaders} of ${one.replicas}`,
        !dead && last && ` · cpu ${percent(one.cpu === null ? last[8] : one.cpu)}`, !dead && one.disk_free ? ` · ${bytes(one.disk_free)} free` : ""),
    );
  }));
}

export function overviewPage() {
  return {
    title: "Overview",
    every: 5000,
    live: async () => {
      const [told, hour] = await Promise.all([ask("v1/overview"), lastHour()]);
      const { nodes, partitions, procedures, attention: found } = told;
      const members = nodes.filter((one) => one.state !== "gone");
      const live = members.filter((one) => one.state === "live" && one.health !== "dead");
      const worst = ["bad", "warn"].find((level) => found.some((one) => one.level === level));
      const words = { bad: "Act now", warn: "Look soon" };
      const kinds = procedures.kinds || {};
      const trouble = ["parked", "stuck", "retrying"].reduce((sum, kind) => sum + (kinds[kind] || 0), 0);
      const to = told.at_ms || Date.now();
      const last = [...hour.hours.values()].flatMap(({ samples }) => samples.slice(-1)).filter(([ms]) => ms > to - 60000);
      const from = beginning(hour, to);
      const rate = last.reduce((sum, one) => sum + one[1] + one[2], 0);
      return [
        tiles([
          { label: "Cluster", value: words[worst] || "All well", level: worst || "good", about: plural(found.length, "finding") },
          { label: "Nodes", value: `${live.length} of ${members.length}`, about: "are live", level: live.length < members.length ? "bad" : "", href: "#/nodes" },
          { label: "Partitions", value: figure(partitions.all), about: partitions.led < partitions.all ? `${partitions.all - partitions.led} without leader` : partitions.whole < partitions.all ? `${partitions.all - partitions.whole} lack replicas` : "all whole", level: partitions.led < partitions.all ? "bad" : partitions.whole < partitions.all ? "warn" : "", href: "#/partitions" },
          { label: "Data", value: bytes(partitions.bytes), about: "newest values" },
          { label: "Requests", value: figure(rate), about: "per second" },
          { label: "Procedures", value: figure(procedures.live), about: trouble ? `${figure(trouble)} in trouble` : "under way", level: trouble ? "warn" : "", href: "#/procedures" },
        ]),
        attention(found),
        el("h2", {}, "Nodes"), nodeCards(nodes, hour.hours),
        el("h2", {}, to - from < HOUR_MS ? `The last ${duration(to - from)}` : "The last hour"), pictures(hour, from, to), heatMap(hour, from, to),
      ];
    },
  };
}
