// Pictures: SVG made here, by the width that there is. Colours are classes of console.css.

import { el, figure } from "./dom.js";

const HEIGHT = 150;
const TOP = 10;
const BOTTOM = 18; // for the times
const LEFT = 48; // for the figures
const shown = new Map(); // by the id of a chart: what a pointer over it asks for

/** How wide a picture may be in a grid of so many columns. */
export function widthOf(columns) {
  const all = document.getElementById("main").clientWidth;
  const n = all < 760 ? 1 : columns;
  return Math.max(240, Math.floor((all - (n - 1) * 16) / n) - 34);
}

const clock = (ms) => new Date(ms).toTimeString().slice(0, 5);

/** The next number of 1, 2, 5, 10, … that is not smaller. */
function ceiling(value) {
  const size = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 5, 10].map((n) => n * size).find((n) => n >= value * 0.999) || size;
}

/** Lines over time. series: [{name, points: [[ms, value or null], …]}, …]. */
export function lines({ id, title, series, from, to, format = figure, width, none }) {
  const all = series.flatMap(({ points }) => points.map(([, v]) => v)).filter((v) => v !== null);
  const head = el("h3", {}, title);
  if (!all.length) return el("figure", { class: "card", id }, head, el("div", { class: "empty" }, none));
  const most = ceiling(Math.max(...all, 1e-9));
  const x = (ms) => LEFT + ((ms - from) / (to - from)) * (width - LEFT);
  const y = (v) => TOP + (1 - v / most) * (HEIGHT - TOP - BOTTOM);
  const line = (points) => {
    let d = "", pen = "M";
    for (const [ms, v] of points) {
      if (v === null) pen = "M";
      else {
        d += `${pen}${x(ms).toFixed(1)} ${y(v).toFixed(1)}`;
        pen = "L";
      }
    }
    return d;
  };
  const last = series.map(({ name, points }) => [name, [...points].reverse().find(([, v]) => v !== null)]);
  const words = last.map(([name, point]) => `${name} ${point ? format(point[1]) : "nothing"}`).join(", ");
  shown.set(id, { series, from, to, format, width, x, y });
  return el(
    "figure", { class: "card", id }, head,
    el(
      "svg", { class: "chart", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}. Now: ${words}`, "data-chart": id },
      [0, 0.5, 1].map((part) => [
        el("line", { class: "grid", x1: LEFT, x2: width, y1: y(most * part), y2: y(most * part) }),
        el("text", { class: "tick", x: LEFT - 7, y: y(most * part) + 4, "text-anchor": "end" }, format(most * part)),
      ]),
      [0, 0.5, 1].map((part) => el("text", { class: "tick", x: x(from + (to - from) * part), y: HEIGHT - 4, "text-anchor": ["start", "middle", "end"][part * 2] }, clock(from + (to - from) * part))),
      series.map(({ points }, i) => el("path", { class: `line c${i % 8}`, d: line(points) })),
      el("g", { class: "pointed", "data-own": true }),
    ),
    el("figcaption", {}, last.map(([name, point], i) => el("span", { class: `key c${i % 8}` }, `${name} `, el("b", {}, point ? format(point[1]) : "–")))),
  );
}

/** A pointer over lines: what they were then. */
document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest && event.target.closest("svg[data-chart]");
  for (const other of document.querySelectorAll(".pointed")) if (!chart || !chart.contains(other)) other.replaceChildren();
  const told = chart && shown.get(chart.dataset.chart);
  if (!told) return;
  const at = event.clientX - chart.getBoundingClientRect().left;
  const ms = told.from + ((at - LEFT) / (told.width - LEFT)) * (told.to - told.from);
  const near = told.series.map(({ name, points }) => [name, points.reduce((best, one) => (one[1] !== null && (!best || Math.abs(one[0] - ms) < Math.abs(best[0] - ms)) ? one : best), null)]);
  const found = near.filter(([, point]) => point);
  if (!found.length) return;
  const px = told.x(found[0][1][0]);
  const text = [clock(found[0][1][0]), ...found.map(([name, [, v]]) => `${name} ${told.format(v)}`)].join("  ");
  const right = px > told.width / 2;
  chart.querySelector(".pointed").replaceChildren(
    el("line", { class: "cursor", x1: px, x2: px, y1: TOP, y2: HEIGHT - BOTTOM }),
    ...found.map(([, [, v]]) => el("circle", { class: "cursor", cx: px, cy: told.y(v), r: 2.5 })),
    el("text", { class: "told", x: right ? px - 6 : px + 6, y: TOP + 10, "text-anchor": right ? "end" : "start" }, text),
  );
});

/** Rows of places over columns of time, the darker the busier. rows: [{label, title, cells: [n, …]}, …]. */
export function heat({ title, rows, from, to, width, format, none }) {
  const head = el("h2", {}, title);
  if (!rows.length) return el("section", { class: "card" }, head, el("div", { class: "empty" }, none));
  const label = Math.min(220, Math.floor(width * 0.34));
  const tall = 22, columns = rows[0].cells.length, cell = (width - label) / columns;
  const most = Math.max(...rows.flatMap(({ cells }) => cells), 1e-9);
  const height = rows.length * tall + BOTTOM + 4;
  const chars = Math.floor(label / 6.7);
  return el(
    "section", { class: "card" }, head,
    el("p", { class: "faint" }, `Requests per second of the busiest ranges; the darkest is ${format(most)}.`),
    el(
      "svg", { class: "chart heat", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${rows.map((row) => row.title).join("; ")}` },
      rows.map((row, i) => el(
        "g", {},
        el("text", { class: "name", x: 0, y: i * tall + 15 }, row.label.length > chars ? `${row.label.slice(0, chars - 1)}…` : row.label, el("title", {}, row.title)),
        row.cells.map((n, j) => el(
          "rect", { class: n > 0 ? "hot" : "cold", x: (label + j * cell).toFixed(1), y: i * tall + 1, width: Math.max(1, cell - 1).toFixed(1), height: tall - 3, "fill-opacity": n > 0 ? (0.12 + 0.88 * Math.sqrt(n / most)).toFixed(2) : null },
          el("title", {}, `${row.title}\n${clock(from + ((to - from) * j) / columns)}: ${format(n)}`),
        )),
      )),
      [0, 0.5, 1].map((part) => el("text", { class: "tick", x: label + (width - label) * part, y: height - 4, "text-anchor": ["start", "middle", "end"][part * 2] }, clock(from + (to - from) * part))),
    ),
  );
}

/** Bars over time. rows: [{label, href, bars: [{from, to, kind, title}, …]}, …]. */
export function gantt({ rows, from, to, width, format }) {
  const label = Math.min(230, Math.floor(width * 0.34));
  const tall = 26, height = rows.length * tall + BOTTOM + 6;
  const room = width - label - 8;
  const x = (ms) => label + ((Math.min(Math.max(ms, from), to) - from) / Math.max(1, to - from)) * room;
  const chars = Math.floor(label / 7);
  return el(
    "svg", { class: "chart gantt", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Timeline: ${rows.map((row) => `${row.label}: ${row.bars.map((bar) => bar.title).join(", ")}`).join("; ")}`.slice(0, 1000) },
    [0, 0.25, 0.5, 0.75, 1].map((part) => [
      el("line", { class: "grid", x1: label + room * part, x2: label + room * part, y1: 0, y2: height - BOTTOM }),
      (part === 0 || part === 1 || width > 520) && el("text", { class: "tick", x: label + room * part, y: height - 4, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, part === 0 ? "0" : format((to - from) * part)),
    ]),
    rows.map((row, i) => el(
      "g", {},
      el("text", { class: `name ${row.kind || ""}`, x: 0, y: i * tall + 17 }, row.label.length > chars ? `${row.label.slice(0, chars - 1)}…` : row.label, el("title", {}, row.label)),
      row.bars.map((bar) => el(
        "rect", { class: `bar ${bar.kind}`, x: x(bar.from).toFixed(1), y: i * tall + (bar.kind === "wait" ? 11 : 5), width: Math.max(3, x(bar.to) - x(bar.from)).toFixed(1), height: bar.kind === "wait" ? 4 : 16, rx: 3 },
        el("title", {}, bar.title),
      )),
    )),
  );
}
