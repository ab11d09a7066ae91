// The status page: asks the server for its figures and shows them. Text of the server is only ever set as text, never as
// markup: names of streams and cursors are written by whoever may write them.
"use strict";

const EVERY = 1000; // milliseconds between two questions
const LATE = 10000; // when an answer counts as lost
const KEPT = 60; // answers that the curves show
const LISTED = 100; // streams in the table
const OLD = 20; // seconds after which the disk's room is shown with its age
const WINDOW = 10; // answers over which rates of streams and latencies are taken

const find = (id) => document.getElementById(id);
const answers = []; // the last answers, the newest last
let shown = null; // the number of the stream whose details are shown
let sorted = "name"; // how the streams are sorted
let asking = null; // the question under way
let next = null; // the one behind it

/** An element with text or children. Attributes are set as attributes. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
function drawing(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Replaces an element's children only where they differ, so that focus and selection stay. */
function replace(element, children) {
  const before = [...element.childNodes];
  const same = before.length === children.length && children.every((child, index) => child.isEqualNode(before[index]));
  if (!same) element.replaceChildren(...children);
}

/** Gives a table's body these rows, each with a key. A row that is as it was stays, so that a focused button does. */
function fill(table, rows, empty) {
  const body = table.tBodies[0];
  const before = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const after = rows.map(([key, row]) => {
    row.dataset.key = key;
    const old = before.get(key);
    if (!old) return row;
    const same = old.cells.length === row.cells.length && [...row.cells].every((cell, index) => cell.isEqualNode(old.cells[index]));
    if (same) {
      if (row.hasAttribute("aria-current")) old.setAttribute("aria-current", "true");
      else old.removeAttribute("aria-current");
      return old;
    }
    const hadFocus = old.contains(document.activeElement);
    if (!hadFocus) return row;
    // The cell with the button stays: only the figures behind it are new.
    [...row.cells].slice(1).forEach((cell, index) => old.cells[index + 1]?.replaceWith(cell));
    return old;
  });
  if (after.length === 0 && empty) {
    const columns = table.tHead.rows[0].cells.length;
    after.push(make("tr", {}, make("td", { class: "empty", colspan: columns }, empty)));
  }
  const same = after.length === body.rows.length && after.every((row, index) => row === body.rows[index]);
  if (!same) body.replaceChildren(...after);
}

const PLAIN = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const FINE = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const number = (value) => (value === null || value === undefined ? "–" : PLAIN.format(value));
const rate = (value) => (value === null ? "–" : value > 0 && value < 10 ? FINE.format(value) : PLAIN.format(value));

/** A value with the unit that suits it, as two texts. */
function bytes(value) {
  if (value === null || value === undefined) return ["–", ""];
  let left = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (left < 1024 || unit === "TiB") return [left < 10 && unit !== "B" ? FINE.format(left) : PLAIN.format(left), unit];
    left /= 1024;
  }
}
const size = (value) => bytes(value).join(" ").trim();

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${PLAIN.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${FINE.format(seconds * 1e3)} ms`;
  return `${FINE.format(seconds)} s`;
}

function time(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, length]) => seconds >= length);
  if (first < 0) return "0 s";
  let left = Math.floor(seconds);
  const parts = [];
  for (const [unit, length] of units.slice(first, first + 2)) {
    const count = Math.floor(left / length);
    left -= count * length;
    if (count > 0 || parts.length === 0) parts.push(`${count} ${unit}`);
  }
  return parts.join(" ");
}

/** How much a count grew in a second between two answers; null if it cannot be told. */
function growth(before, now, count) {
  const seconds = (now.time_ms - before.time_ms) / 1000;
  if (!before.server || !now.server || seconds <= 0) return null;
  return Math.max(0, count(now.server) - count(before.server)) / seconds;
}

const past = () => answers[Math.max(0, answers.length - 1 - WINDOW)];

/** The duration that this share of what was counted between two answers did not exceed. */
function quantile(before, now, share) {
  const counts = now.buckets.map(([bound, count], index) => [bound, count - (before ? before.buckets[index][1] : 0)]);
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  if (total <= 0) return null;
  let below = 0;
  let from = 0;
  for (const [bound, count] of counts) {
    const to = bound === null ? from : bound;
    if (count > 0 && below + count >= total * share) return from + (to - from) * ((total * share - below) / count);
    below += count;
    from = to;
  }
  return from;
}

function curve(values) {
  const top = Math.max(1e-9, ...values);
  const step = 100 / (KEPT - 1);
  const start = 100 - (values.length - 1) * step;
  const points = values.map((value, index) => `${(start + index * step).toFixed(2)},${(26 - (value / top) * 24).toFixed(2)}`);
  const svg = drawing("svg", { viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (points.length > 1) {
    svg.append(
      drawing("polygon", { points: `${start.toFixed(2)},28 ${points.join(" ")} 100,28`, fill: "currentColor", opacity: "0.12" }),
      drawing("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": "1.5", "vector-effect": "non-scaling-stroke" }),
    );
  }
  return svg;
}

const TILES = [
  ["append-records", "Records appended", (s) => s.counts.append_records, rate, "/ s"],
  ["append-bytes", "Bytes appended", (s) => s.counts.append_bytes, bytes, "/ s"],
  ["fetch-bytes", "Bytes fetched", (s) => s.counts.fetch_bytes, bytes, "/ s"],
  ["syncs", "Syncs", (s) => s.counts.syncs, rate, "/ s"],
];
const GAUGES = [
  ["connections", "Connections", (s) => s.gauges.connections, number, ""],
  ["pending", "Waiting for the disk", (s) => s.gauges.append_pending_bytes, bytes, ""],
  ["streams-now", "Streams", (s) => s.gauges.streams, number, ""],
  ["memory", "Memory", (s) => s.gauges.resident_bytes, bytes, ""],
];

function tile(id, label, value, form, per, values) {
  const text = form(value);
  const [figure, unit] = Array.isArray(text) ? text : [text, ""];
  const units = [unit, per].filter(Boolean).join(" ");
  return make(
    "div",
    { class: "tile", id: `tile-${id}` },
    make("div", { class: "label" }, label),
    make("div", { class: "value" }, figure, units ? make("span", { class: "unit" }, units) : null),
    curve(values),
  );
}

function showTiles(now) {
  const pairs = answers.slice(1).map((answer, index) => [answers[index], answer]);
  const last = answers[Math.max(0, answers.length - 4)];
  const moving = TILES.map(([id, label, count, form, per]) => {
    const values = pairs.map(([before, after]) => growth(before, after, count) ?? 0);
    return tile(id, label, answers.length > 1 ? growth(last, now, count) : null, form, per, values);
  });
  const still = GAUGES.map(([id, label, figure, form, per]) =>
    tile(id, label, figure(now.server), form, per, answers.filter((answer) => answer.server).map((answer) => figure(answer.server))),
  );
  replace(find("tiles"), [...moving, ...still]);
}

const LATENCIES = [
  ["append", "Append, until it is acknowledged"],
  ["end_to_end", "End to end, until a waiting reader has it"],
  ["fetch", "Fetch of what is there"],
  ["sync", "Sync of the disk"],
  ["metadata", "Change of a stream"],
  ["loop_lag", "Lag of the serving thread"],
];

function showLatencies(now) {
  const before = past();
  const rows = LATENCIES.map(([name, label]) => {
    const took = now.server.latencies[name];
    const then = before.server && before !== now ? before.server.latencies[name] : null;
    const recent = then !== null && took.count > then.count ? then : null;
    const row = make(
      "tr",
      {},
      make("th", { scope: "row" }, label),
      make("td", { class: "n" }, before === now ? "–" : rate(growth(before, now, (s) => s.latencies[name].count))),
      make("td", { class: "n" }, duration(quantile(recent, took, 0.5))),
      make("td", { class: "n" }, duration(quantile(recent, took, 0.99))),
      make("td", { class: "n quiet" }, number(took.count)),
    );
    return [name, row];
  });
  fill(find("latency"), rows);
}

const offsets = (row) => (row.end === null ? `${number(row.start)} –` : `${number(row.start)} – ${number(row.end)}`);
const nameOf = (row) => row.name ?? `stream ${row.id}`;

function streamRate(now, id) {
  const before = past();
  const at = (answer) => answer.server?.streams.list.find((row) => row.id === id)?.end;
  const [then, end] = [at(before), at(now)];
  const seconds = (now.time_ms - before.time_ms) / 1000;
  return then === undefined || then === null || end === null || seconds <= 0 ? null : Math.max(0, end - then) / seconds;
}

function showStreams(now) {
  const { matched, list } = now.server.streams;
  find("stream-count").textContent = number(now.server.gauges.streams);
  const rows = list.map((stream) => {
    const open = make("button", { class: "link", type: "button", title: nameOf(stream), onclick: () => show(stream.id) }, nameOf(stream));
    const cells = [
      make("td", { class: "name" }, open),
      make("td", { class: "n" }, offsets(stream)),
      make("td", { class: "n" }, rate(streamRate(now, stream.id))),
      make("td", { class: "n" }, size(stream.bytes)),
      make("td", { class: "n" }, number(stream.writers)),
      make("td", { class: "n" }, number(stream.ranges)),
    ];
    return [String(stream.id), make("tr", { "aria-current": stream.id === shown ? "true" : null }, ...cells)];
  });
  const searched = find("search").value.trim();
  fill(find("stream-table"), rows, searched ? "No stream fits." : "There are no streams yet.");
  const note = matched > list.length ? `${number(list.length)} of ${number(matched)} shown; search for the others.` : searched ? `${number(matched)} found` : "";
  find("stream-note").textContent = note;
}

function fact(name, value) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value));
}

function showDetail(now) {
  const detail = find("detail");
  if (shown === null) {
    detail.hidden = true;
    return;
  }
  const stream = now.server.stream;
  detail.hidden = false;
  const close = make("button", { class: "close", type: "button", onclick: () => show(null) }, "Close");
  if (!stream) {
    replaceDetail(detail, [make("div", { class: "top" }, make("h3", { id: "detail-title" }, `Stream ${shown}`), close), make("p", { class: "note" }, "It is not here (any more).")]);
    return;
  }
  const cursors = now.server.streams.cursors.filter((cursor) => cursor.stream === stream.id);
  const facts = make(
    "dl",
    {},
    fact("Number", stream.id),
    fact("Offsets", offsets(stream)),
    fact("Records", stream.end === null ? "–" : number(stream.end - stream.start)),
    fact("Stored here", size(stream.bytes)),
    fact("Writers", number(stream.writers)),
    fact("Records are", stream.typed ? "rows with columns" : "opaque"),
    fact("Kept", stream.retention_ms > 0 ? time(stream.retention_ms / 1000) : stream.retention_bytes > 0 ? size(stream.retention_bytes) : "for ever"),
    fact("Created", stream.created_ms ? new Date(stream.created_ms).toISOString().slice(0, 19).replace("T", " ") : "–"),
    ...cursors.map((cursor) => fact(`Lag of ${cursor.name}`, number(cursor.lag))),
  );
  const head = make("thead", {}, make("tr", {}, ...["Range", "State", "Offsets", "Epoch", "Stored here", "Replicas"].map((title, index) => make("th", { scope: "col", class: index === 2 || index === 3 || index === 4 ? "n" : null }, title))));
  const body = make("tbody", {}, ...stream.range_list.map((range) => {
    const replicas = range.replicas.flatMap((replica, index) => [
      index ? ", " : "",
      make("span", { class: replica.up ? null : "down" }, `${replica.address || `server ${replica.server}`}${replica.up ? "" : " (down)"}`),
    ]);
    const state = range.damage.length ? make("span", { class: "down" }, `damaged ${range.damage.map(([from, to]) => `${from}–${to}`).join(", ")}`) : range.state;
    return make("tr", {}, make("th", { scope: "row" }, range.index), make("td", {}, state), make("td", { class: "n" }, offsets(range)), make("td", { class: "n" }, range.epoch), make("td", { class: "n" }, size(range.bytes)), make("td", {}, ...replicas));
  }));
  replaceDetail(detail, [
    make("div", { class: "top" }, make("h3", { id: "detail-title" }, nameOf(stream)), close),
    facts,
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Ranges" }, make("table", { id: "range-table" }, head, body)),
  ]);
}

/** As `replace`, and the button to close keeps the focus. */
function replaceDetail(detail, children) {
  const focused = detail.contains(document.activeElement) && document.activeElement.className === "close";
  replace(detail, children);
  if (focused) detail.querySelector(".close").focus();
}

function showCursors(now) {
  const cursors = [...now.server.streams.cursors].sort((one, other) => (other.lag ?? -1) - (one.lag ?? -1));
  find("cursors").hidden = cursors.length === 0;
  const rows = cursors.map((cursor) => [
    `${cursor.name}\n${cursor.stream}`,
    make("tr", {}, make("th", { scope: "row", class: "name" }, cursor.name), make("td", { class: "name" }, cursor.stream_name || `stream ${cursor.stream}`), make("td", { class: "n" }, number(cursor.next)), make("td", { class: "n" }, number(cursor.lag))),
  ]);
  fill(find("cursor-table"), rows);
}

function showServers(now) {
  const { servers } = now.server.cluster;
  const rows = servers.map((server) => [
    String(server.id),
    make(
      "tr",
      {},
      make("th", { scope: "row" }, `${server.id} · ${server.address}${server.this ? " (this one)" : ""}`),
      make("td", {}, make("span", { class: server.up ? "up" : "down" }, server.up ? "up" : "down")),
      make("td", { class: "n" }, number(server.open_ranges)),
      make("td", { class: "n" }, number(server.appends_per_second)),
      make("td", { class: "n" }, number(server.fetches_per_second)),
      make("td", { class: "n" }, size(server.free_bytes)),
    ),
  ]);
  fill(find("server-table"), rows, "No range server has registered yet.");
}

function line(name, value) {
  return make("div", { class: "row" }, make("span", {}, name), make("span", {}, value));
}

function showDisk(now) {
  const { gauges, counts } = now.server;
  const used = gauges.disk_size_bytes - gauges.disk_free_bytes;
  const share = gauges.disk_size_bytes > 0 ? (used / gauges.disk_size_bytes) * 100 : 0;
  const age = gauges.disk_space_age_seconds;
  const known = age > OLD ? `, ${time(age)} ago` : "";
  const bar = drawing("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": `${PLAIN.format(share)} percent of the disk are used` }, drawing("rect", { width: share.toFixed(1), height: "8", fill: "currentColor" }));
  replace(find("disk"), [
    make("div", { class: share > 90 || gauges.disk_full || gauges.disk_nearly_full ? "meter bad" : "meter" }, bar),
    line("Free", `${size(gauges.disk_free_bytes)} of ${size(gauges.disk_size_bytes)}${known}`),
    line("Segments of the log", number(gauges.segments)),
    line("Written since the start", size(counts.written_bytes)),
    line("Of it to free space", size(counts.compacted_bytes)),
    line("Directory", now.server.data_dir),
    line("Acknowledged means", now.server.durability === "fsync" ? "synced" : "handed to the system"),
  ]);
  const refused = counts.refusals.map((refusal) => line(`${refusal.name.toLowerCase().replaceAll("_", " ")} (${refusal.code})`, number(refusal.count)));
  replace(find("refused"), refused.length ? refused : [make("div", { class: "quiet" }, "Nothing since the start.")]);
}

function showDamage(now) {
  const { damage } = now.server;
  find("damage").hidden = damage.length === 0;
  const rows = damage.map((one) => [
    `${one.stream}/${one.range}/${one.from}`,
    make("tr", {}, make("td", { class: "n" }, one.stream), make("td", { class: "n" }, one.range), make("td", { class: "n" }, `${number(one.from)} – ${number(one.to)}`)),
  ]);
  fill(find("damage-table"), rows);
}

const PHASES = { starting: "starting", recovering: "recovering", serving: "serving", draining: "draining", ended: "ended" };

function showState(kind, text) {
  find("state").dataset.state = kind;
  if (find("state-text").textContent !== text) find("state-text").textContent = text;
}

function showProblems(now) {
  const failed = now.problems.some((problem) => problem.kind === "failed");
  const kind = now.ready ? (now.problems.length ? "warn" : "good") : "bad";
  const text = failed ? "failed" : PHASES[now.phase] ?? now.phase;
  showState(kind, now.ready && now.problems.length ? `${text}, with problems` : text);
  replace(find("problems"), described(now.problems));
}

const GRAVE = ["failed", "disk-hung"];
const described = (problems) => problems.map((problem) => make("p", { class: GRAVE.includes(problem.kind) ? "problem bad" : "problem" }, problem.text));

const ROLES = { both: "placement driver and range server", "placement-driver": "placement driver", "range-server": "range server" };

function render(now) {
  showProblems(now);
  find("build").textContent = `sbp ${now.version}`;
  if (!now.server) return;
  const { server } = now;
  find("title").textContent = server.address;
  document.title = `${server.address} · sbp`;
  find("subtitle").textContent = `${ROLES[server.role] ?? server.role}${server.id === null ? "" : ` ${server.id}`} · up ${time(now.uptime_seconds)}`;
  showTiles(now);
  showLatencies(now);
  showStreams(now);
  showDetail(now);
  showCursors(now);
  showServers(now);
  showDisk(now);
  showDamage(now);
}

/** Asks now, or right after the question under way, whose answer may be of an older search. */
function ask() {
  if (asking) {
    next ??= asking.then(() => {
      next = null;
      return ask();
    });
    return next;
  }
  asking = askOnce().finally(() => {
    asking = null;
  });
  return asking;
}

function authorization() {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function askOnce() {
  const query = new URLSearchParams({ search: find("search").value.trim(), sort: sorted, limit: LISTED });
  if (shown !== null) query.set("stream", shown);
  try {
    const headers = authorization();
    const response = await fetch(`status.json?${query}`, { headers, signal: AbortSignal.timeout(LATE) });
    if (response.status === 401 || response.status === 403) {
      refused(response.status, "Authorization" in headers);
      return;
    }
    find("door").hidden = true;
    if (!response.ok) throw new Error(`the server answers ${response.status}`);
    const now = await response.json();
    if (answers.length > 0 && now.uptime_seconds < answers[answers.length - 1].uptime_seconds) answers.length = 0;
    answers.push(now);
    if (answers.length > KEPT) answers.shift();
    render(now);
  } catch (error) {
    const late = make("p", { class: "problem bad" }, `The server does not answer (${error.message}). What is shown is from before.`);
    showState("bad", "no answer");
    replace(find("problems"), [late, ...(await known())]);
  }
}

/** What is wrong, as the server tells it even when its figures wait for something. */
async function known() {
  try {
    const response = await fetch("health/ready", { headers: authorization(), signal: AbortSignal.timeout(LATE) });
    return described((await response.json()).problems);
  } catch {
    return [];
  }
}

/** The server asks who somebody is, and does not know this token or does not let it look. */
function refused(status, given) {
  showState("warn", "asks who you are");
  find("subtitle").textContent = "";
  find("door").hidden = false;
  if (given) find("door-note").textContent = status === 403 ? "The token is known, and its name may not see this." : "The server does not know this token.";
}

function enter() {
  // What a header cannot carry, the server does not know.
  sessionStorage.setItem("token", find("token").value.replace(/[^\x21-\x7e]/g, ""));
  find("token").value = "";
  ask();
}

/** Shows the details of a stream, or of none. The address of the page says which. */
function show(id) {
  shown = id;
  const address = new URL(location.href);
  if (id === null) address.searchParams.delete("stream");
  else address.searchParams.set("stream", id);
  history.replaceState(null, "", address);
  ask().then(() => {
    if (id !== null) find("detail").focus({ preventScroll: false });
    else find("stream-table").querySelector("tbody button")?.focus();
  });
}

/** Sorts the streams. */
function sort(by) {
  sorted = by;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const heading = button.parentElement;
    if (button.dataset.sort !== by) heading.removeAttribute("aria-sort");
    else heading.setAttribute("aria-sort", by === "name" ? "ascending" : "descending");
  }
  ask();
}

function begin() {
  const asked = new URLSearchParams(location.search);
  const stream = asked.get("stream");
  if (stream !== null && /^\d+$/.test(stream)) shown = Number(stream);
  find("search").value = asked.get("search") ?? "";
  find("search").addEventListener("input", ask);
  for (const button of document.querySelectorAll("[data-sort]")) button.addEventListener("click", () => sort(button.dataset.sort));
  find("enter").addEventListener("click", enter);
  find("token").addEventListener("keydown", (event) => {
    if (event.key === "Enter") enter();
  });
  document.addEventListener("keydown", (event) => {
    const typing = document.activeElement.tagName === "INPUT";
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      find("search").focus();
    } else if (event.key === "Escape" && shown !== null && !typing) show(null);
  });
  ask();
  setInterval(() => {
    if (!document.hidden && !asking) ask();
  }, EVERY);
}

begin();
