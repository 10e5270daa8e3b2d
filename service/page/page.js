"use strict";
// The page: shows views as they come, and asks for what somebody wants to see.  Text is set as text, never as markup.
const $ = (id) => document.getElementById(id);
const make = (name, text, attributes = {}) => {
  const one = document.createElement(name);
  if (text !== undefined && text !== null) one.textContent = text;
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  return one;
};
const short = (n) => n === null || n === undefined ? "-" : Math.abs(n) < 10000 ? (Number.isInteger(n) ? n : +n.toFixed(1)).toLocaleString("en")
  : n.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
const whole = (n) => n === null || n === undefined ? "none" : n.toLocaleString("en");
const percent = (n) => n === null || n === undefined ? "" : (100 * n).toFixed(1) + "%";
const word = (n) => n === null || n === undefined ? "" : String(n);
const TABLES = {
  zones: ["Zones", "fill", [["zone", "zone", word], ["connections", "connections", whole], ["limit", "limit", whole], ["full", "fill", percent], ["change/s", "change", short]]],
  sources: ["Sources", "connections", [["address", "address", word, 1], ["zone", "zone", word], ["connections", "connections", whole], ["share", "share", percent], ["packets", "packets", short], ["bytes", "bytes", short]]],
  destinations: ["Targets", "connections", [["address", "address", word, 1], ["zone", "zone", word], ["connections", "connections", whole], ["share", "share", percent], ["packets", "packets", short], ["bytes", "bytes", short]]],
  kinds: ["States", "connections", [["", "group", word, 1], ["kind", "kind", word, 1], ["connections", "connections", whole], ["share", "share", percent]]],
  workers: ["Workers", "packets", [["worker", "worker", word], ["pid", "pid", word], ["state", "state", word, 1], ["load", "load", percent], ["packets/s", "packets", short], ["new/s", "new", short], ["invalid/s", "invalid", short], ["restarts", "restarts", word]]],
  queues: ["Queues", "rx_packets", [["port", "port", word, 1], ["queue", "queue", word], ["worker", "worker", word], ["in/s", "rx_packets", short], ["out/s", "tx_packets", short], ["dropped/s", "tx_full", short]]],
  reasons: ["Reasons", "count", [["reason", "reason", word, 1], ["became", "fate", word, 1], ["packets", "count", whole], ["a second", "rate", short]]],
};
let view = null, shown = "zones", orders = {};

function table(caption, columns, rows, sort, isUpward, onSort) {
  const one = make("table");
  one.append(make("caption", caption));
  const head = make("tr");
  for (const [heading, key, , isText] of columns) {
    const cell = make("th", undefined, { scope: "col", class: isText ? "text" : "" });
    if (onSort) {
      const button = make("button", heading || key, { type: "button", "data-key": key });
      button.addEventListener("click", () => onSort(key));
      cell.append(button);
      if (key === sort) cell.setAttribute("aria-sort", isUpward ? "ascending" : "descending");
    } else cell.textContent = heading;
    head.append(cell);
  }
  const thead = make("thead"), body = make("tbody");
  thead.append(head);
  for (const row of rows) {
    const line = make("tr");
    for (const [, key, show, isText] of columns) line.append(make("td", show(row[key]), { class: isText ? "text" : "" }));
    body.append(line);
  }
  one.append(thead, body);
  return one;
}

function showTable() {
  if (!view) return;
  const [title, first, columns] = TABLES[shown];
  const [sort, isUpward] = orders[shown] || [first, false];
  const rows = [...view[shown]].sort((a, b) => {
    const [x, y] = [a[sort], b[sort]];
    if (x === y) return (b.connections || 0) - (a.connections || 0);
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return (x < y ? -1 : 1) * (isUpward ? 1 : -1);
  });
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
  const onSort = (key) => { orders[shown] = [key, key === sort ? !isUpward : false]; showTable(); };
  $("panel").replaceChildren(table(`${title}: ${rows.length}`, columns, rows, sort, isUpward, onSort));
  if (focused) { const again = $("panel").querySelector(`[data-key="${focused}"]`); if (again) again.focus(); }
}

function choose(name) {
  shown = name;
  for (const tab of $("tabs").children) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  $("panel").setAttribute("aria-labelledby", `tab-${name}`);
  showTable();
}

function show(next) {
  view = next;
  const most = view.limit === null ? view.capacity : view.limit;
  $("instance").textContent = view.instance;
  $("about").textContent = `${whole(view.zones_in_use)} zones, ${view.workers.length} workers`;
  $("connections").textContent = `${whole(view.connections)} of ${short(most)}`;
  $("full").value = most ? view.connections / most : 0;
  for (const name of ["packets", "new", "invalid", "refused"]) $(name).textContent = short(view.rates[name]);
  $("due").textContent = whole(view.sweep.due);
  showTable();
}

function chart(title, points, key) {
  const figure = make("figure"), values = points.map((point) => point[key]);
  const highest = Math.max(0, ...values), scale = highest || 1, NS = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(NS, "svg"), line = document.createElementNS(NS, "polyline");
  svg.setAttribute("viewBox", "0 0 360 50");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${title}: now ${short(values[values.length - 1])}, at most ${short(highest)}`);
  line.setAttribute("points", values.map((value, place) => `${360 - values.length + place},${49 - 48 * value / scale}`).join(" "));
  svg.append(line);
  const minutes = Math.max(1, Math.round((points[points.length - 1].time - points[0].time) / 60));
  figure.append(make("figcaption", `${title}, ${minutes} min, peak ${short(highest)}`), svg);
  return figure;
}

async function history() {
  try {
    const points = await (await fetch("history")).json();
    if (points.length) $("hour").replaceChildren(...[["Connections", "connections"], ["Packets/s", "packets"],
      ["New/s", "new"], ["Invalid/s", "invalid"]].map(([title, key]) => chart(title, points, key)));
  } catch { /* the state line says that nobody answers */ }
}

const end = (way) => way.sport === undefined ? [way.src, way.dst] : [`${way.src} ${way.sport}`, `${way.dst} ${way.dport}`];
async function search(event) {
  event.preventDefault();
  const answer = await (await fetch("connections?q=" + encodeURIComponent($("q").value))).json();
  if (answer.error) { $("found").replaceChildren(make("p", answer.error, { class: "error" })); return; }
  const rows = answer.connections.map((one) => { const [source, target] = end(one.orig); return { ...one, source, target, packets: `${one.orig.packets} / ${one.reply.packets}` }; });
  const caption = answer.whole ? `${rows.length} connections` : `the first ${rows.length} connections`;
  $("found").replaceChildren(table(caption, [["protocol", "proto", word, 1], ["zone", "zone", word], ["source", "source", word, 1], ["target", "target", word, 1],
    ["state", "state", word, 1], ["packets", "packets", word], ["timeout", "timeout", word]], rows));
}

async function explain() {
  const told = await (await fetch("explain")).json(), list = make("dl");
  for (const one of told) {
    list.append(make("dt", `${new Date(1000 * one.time).toLocaleTimeString()} ${one.fate}, ${one.reason}: ${one.expected}`));
    list.append(make("dd", `${one.arrived}; zone ${one.zone}`));
    if (one.accepted_with && one.accepted_with.length) list.append(make("dd", `accepted with ${one.accepted_with.join(" or ")}`));
  }
  $("explained").replaceChildren(told.length ? list : make("p", "none has been sampled"));
}

function theme(isDark) {
  document.documentElement.classList.toggle("dark", isDark);
  $("theme").textContent = isDark ? "Light" : "Dark";
}

const names = Object.keys(TABLES);
for (const name of names) {
  const tab = make("button", TABLES[name][0], { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel" });
  tab.addEventListener("click", () => choose(name));
  $("tabs").append(tab);
}
$("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  choose(names[(names.indexOf(shown) + step + names.length) % names.length]);
  $(`tab-${shown}`).focus();
});
$("search").addEventListener("submit", search);
$("explain").addEventListener("click", explain);
theme(matchMedia("(prefers-color-scheme: dark)").matches);
$("theme").addEventListener("click", () => theme(!document.documentElement.classList.contains("dark")));
choose("zones");
history();
setInterval(history, 10000);
const events = new EventSource("events");
events.onmessage = (event) => { $("state").textContent = "live"; show(JSON.parse(event.data)); };
events.onerror = () => { $("state").textContent = "nobody answers; trying again"; };
