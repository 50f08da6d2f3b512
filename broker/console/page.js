"use strict";
// Text reaches the page through textContent and attributes only; the page's policy (CSP, trusted types) enforces it.

const TOKEN = new URLSearchParams(location.search).get("token") || "";
const VIEWS = ["overview", "topics", "groups", "producers", "requests", "faults"];
const REQUESTS_KEPT = 500;
const REQUESTS_SHOWN = 200;
const QUIET = new Set(["FETCH", "HEARTBEAT", "METADATA", "API_VERSIONS"]);
const RECONNECT_MS = [500, 1000, 2000, 4000];
const TOAST_MS = 6000;

const $ = (id) => document.getElementById(id);
const state = { requests: [], paused: false, skipped: 0, requestsFrom: 0, view: "", topic: null };

// --- Elements ---

function el(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "onclick") made.addEventListener("click", value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function badge(node, text, kind) {
  setText(node, text);
  const wanted = "badge " + kind;
  if (node.className !== wanted) node.className = wanted;
}

// A table whose rows stay the same elements while their data change, so that focus and selection survive an update.
// columns: {head, text: row => string} or {head, build: (cell, row => latest) => update}; kind: classes of the cells.
function table(container, columns, keyOf, options) {
  const body = el("tbody");
  const headRow = el("tr", null, ...columns.map((each) => el("th", { scope: "col", class: (each.kind || "").includes("num") ? "num" : null }, each.head)));
  const whole = el("table", { "aria-label": options.label }, el("thead", null, headRow), body);
  const empty = el("p", { class: "empty" });
  const frame = el("div", { class: "table" }, whole, empty);
  container.replaceChildren(frame);
  const known = new Map();
  return function update(rows, emptyText) {
    whole.hidden = rows.length === 0;
    empty.hidden = rows.length !== 0;
    setText(empty, emptyText || options.empty || "");
    const keys = new Set();
    let place = body.firstElementChild;
    for (const row of rows) {
      const key = keyOf(row);
      keys.add(key);
      let shown = known.get(key);
      if (!shown) {
        shown = { tr: el("tr"), row, updates: [] };
        for (const column of columns) {
          const cell = el("td", { class: column.kind, "data-label": column.head });
          shown.tr.append(cell);
          if (column.build) shown.updates.push(column.build(cell, () => shown.row));
          else shown.updates.push(() => setText(cell, column.text(shown.row)));
        }
        known.set(key, shown);
      }
      shown.row = row;
      shown.updates.forEach((each) => each(row));
      if (options.dim) shown.tr.className = options.dim(row) ? "dim" : "";
      if (place === shown.tr) place = place.nextElementSibling;
      else body.insertBefore(shown.tr, place);
    }
    for (const [key, shown] of known) {
      if (!keys.has(key)) {
        const hadFocus = shown.tr.contains(document.activeElement);
        shown.tr.remove();
        known.delete(key);
        if (hadFocus) document.querySelector("[data-view]:not([hidden]) h1").focus();
      }
    }
  };
}

// --- Texts ---

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return (unit === "B" ? Math.round(value) : value.toFixed(1)) + " " + unit;
    value /= 1024;
  }
  return value.toFixed(1) + " TiB";
}

function rate(value) {
  return value >= 100 ? number(Math.round(value)) : value.toFixed(value < 10 && value > 0 ? 1 : 0);
}

const two = (value) => String(value).padStart(2, "0");

function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

function time(ms) {
  if (ms === null || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}

const apiName = (name) => name.split("_").map((each) => each[0] + each.slice(1).toLowerCase()).join("");

// --- Talking to the server ---

async function ask(method, path, body) {
  const headers = { "X-Headrace-Token": TOKEN };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (failed) {
    throw new Error("The console doesn't answer: its process has ended.");
  }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error.message);
  return found;
}

// Runs an action of a button or form, once at a time, and shows the outcome as a toast. The button is not `disabled`
// meanwhile, because it would lose the focus.
async function act(button, run, done) {
  if (button.getAttribute("aria-disabled")) return null;
  button.setAttribute("aria-disabled", "true");
  try {
    const found = await run();
    if (done) toast(typeof done === "function" ? done(found) : done);
    return found;
  } catch (failed) {
    toast(failed.message, true);
    return null;
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

function toast(text, failed) {
  const box = el("div", { class: failed ? "toast failed" : "toast", role: failed ? "alert" : null }, el("span", null, text));
  box.append(el("button", { type: "button", class: "quiet small", "aria-label": "Dismiss", onclick: () => box.remove() }, "×"));
  $("toasts").append(box);
  while ($("toasts").children.length > 4) $("toasts").firstElementChild.remove();
  setTimeout(() => box.remove(), failed ? TOAST_MS * 2 : TOAST_MS);
}

function connection(text, kind) {
  setText($("connection"), text);
  $("connection").className = "pill " + kind;
}

async function follow() {
  let failures = 0;
  for (;;) {
    try {
      const answer = await fetch("/api/events", { headers: { "X-Headrace-Token": TOKEN } });
      if (!answer.ok) {
        const found = await answer.json();
        connection(answer.status === 403 ? "not allowed" : "waiting", "lost");
        if (answer.status === 403) {
          toast(found.error.message, true);
          return;
        }
        throw new Error(found.error.message);
      }
      failures = 0;
      connection("live", "live");
      await readEvents(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (failed) {
      // the process has ended, or is being started again
    }
    connection("disconnected", "lost");
    await new Promise((done) => setTimeout(done, RECONNECT_MS[Math.min(failures, RECONNECT_MS.length - 1)]));
    failures += 1;
  }
}

async function readEvents(reader) {
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const match = /^event: (\w+)\ndata: (.*)$/.exec(part);
      if (match) take(match[1], JSON.parse(match[2]));
    }
  }
}

const takers = {};

function take(name, data) {
  state[name === "requests" ? "newRequests" : name] = data;
  for (const each of takers[name] || []) each(data);
}

function on(name, run) {
  (takers[name] = takers[name] || []).push(run);
}

// --- Overview ---

on("cluster", (cluster) => {
  setText($("bootstrap"), cluster.bootstrap);
  $("copy").hidden = !navigator.clipboard;
});
$("copy").addEventListener("click", () =>
  act($("copy"), () => navigator.clipboard.writeText(state.cluster.bootstrap), "Copied the address for clients."),
);

function tile(name, field, show) {
  const value = el("div", { class: "value" }, "–");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 119 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const area = document.createElementNS("http://www.w3.org/2000/svg", "polygon");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  svg.append(area, line);
  $("rates").append(el("div", { class: "tile" }, el("div", { class: "name" }, name), value, svg));
  on("rates", (rates) => {
    setText(value, show(rates.now[field]));
    const most = Math.max(1, ...rates.samples.map((each) => each[field]));
    const first = 120 - rates.samples.length;
    const points = rates.samples.map((each, at) => `${first + at},${(38 - (each[field] / most) * 35).toFixed(1)}`);
    line.setAttribute("points", points.join(" "));
    area.setAttribute("points", `${first},38 ${points.join(" ")} 119,38`);
    svg.setAttribute("aria-label", `${name} over the last minute, at most ${show(most)}`);
  });
}
tile("Records per second", "records", rate);
tile("Bytes appended per second", "bytes", size);
tile("Requests per second", "requests", rate);

function brokerButton(text, action, done, kind) {
  return (row) => {
    const button = el("button", { type: "button", class: "small " + (kind || "") }, text);
    button.addEventListener("click", () =>
      act(button, () => ask("POST", "/api/brokers", { node_id: row().id, action }), () => `Broker ${row().id} ${done}.`),
    );
    return button;
  };
}

const updateBrokers = table(
  $("brokers"),
  [
    {
      head: "Broker",
      kind: "tight",
      build: (cell) => {
        const id = el("span");
        const controller = el("span", { class: "badge" }, "controller");
        cell.append(el("span", null, id, " ", controller));
        return (row) => {
          setText(id, String(row.id));
          controller.hidden = !row.is_controller;
        };
      },
    },
    {
      head: "State",
      kind: "tight",
      build: (cell) => {
        const mark = el("span");
        cell.append(mark);
        return (row) => badge(mark, row.state, row.state === "running" ? "good" : row.state === "stopped" ? "bad" : "warn");
      },
    },
    { head: "Address", kind: "mono", text: (row) => (row.listeners.length > 1 ? row.listeners.join(", ") : row.address || "–") },
    { head: "Rack", text: (row) => row.rack || "–" },
    { head: "Leads", kind: "num", text: (row) => number(row.leads) },
    { head: "Replicas", kind: "num", text: (row) => number(row.replicas) },
    { head: "Size", kind: "num", text: (row) => size(row.size_bytes) },
    { head: "Connections", kind: "num", text: (row) => number(row.connections) },
    {
      head: "Actions",
      kind: "num",
      build: (cell, row) => {
        const kill = brokerButton("Kill", "kill", "is killed", "danger")(row);
        const stop = brokerButton("Stop", "stop", "is stopped")(row);
        const start = brokerButton("Start", "start", "runs again")(row);
        cell.append(el("div", { class: "row-actions" }, kill, stop, start));
        return (now) => {
          const isStopped = now.state === "stopped";
          const focused = document.activeElement;
          kill.hidden = stop.hidden = isStopped;
          start.hidden = !isStopped;
          for (const [button, text] of [[kill, "Kill"], [stop, "Stop"], [start, "Start"]]) {
            button.setAttribute("aria-label", `${text} broker ${now.id}`);
          }
          // the button with the focus has just disappeared
          if ([kill, stop, start].includes(focused) && focused.hidden) (isStopped ? start : kill).focus();
        };
      },
    },
  ],
  (row) => row.id,
  { label: "Brokers", dim: (row) => row.state === "stopped" },
);
on("brokers", (brokers) => updateBrokers(brokers.rows));

// --- Topics ---

const topicLink = (name) => "#/topics/" + encodeURIComponent(name);
const updateTopics = table(
  $("topics"),
  [
    {
      head: "Topic",
      build: (cell) => {
        const link = el("a");
        const internal = el("span", { class: "badge" }, "internal");
        const offline = el("span", { class: "badge bad" });
        cell.append(el("span", null, link, " ", internal, " ", offline));
        return (row) => {
          setText(link, row.name);
          link.setAttribute("href", topicLink(row.name));
          internal.hidden = !row.is_internal;
          offline.hidden = !row.offline;
          setText(offline, `${row.offline} without leader`);
        };
      },
    },
    { head: "Partitions", kind: "num", text: (row) => number(row.partition_count) },
    { head: "Records", kind: "num", text: (row) => number(row.records) },
    { head: "Records/s", kind: "num", text: (row) => rateOf(row.name) },
    { head: "Size", kind: "num", text: (row) => size(row.size_bytes) },
  ],
  (row) => row.name,
  { label: "Topics" },
);

function rateOf(name) {
  const rates = state.rates && state.rates.now.topics;
  return rates && rates[name] ? rate(rates[name]) : "0";
}

function showTopics() {
  if (!state.topics) return;
  const wanted = $("topic-filter").value.trim().toLowerCase();
  const internal = $("topic-internal").checked;
  const rows = state.topics.rows.filter(
    (each) => (internal || !each.is_internal) && each.name.toLowerCase().includes(wanted),
  );
  updateTopics(
    rows,
    wanted
      ? `No topic has “${wanted}” in its name.`
      : "There are no topics yet.\nCreate one with “New topic…”, or let a client create it: brokers create a topic when a producer first asks for it.",
  );
  setCount("topics", state.topics.rows.filter((each) => !each.is_internal).length);
  $("topic-names").replaceChildren(...state.topics.rows.slice(0, 200).map((each) => el("option", { value: each.name })));
  showTopic();
}
on("topics", showTopics);
on("rates", () => state.view === "topics" && showTopics());
$("topic-filter").addEventListener("input", showTopics);
$("topic-internal").addEventListener("change", showTopics);

function setCount(name, count) {
  setText(document.querySelector(`[data-count="${name}"]`), count ? number(count) : "");
}

$("new-topic").addEventListener("click", () => {
  const form = $("topic-form");
  form.elements.replication_factor.max = state.brokers ? state.brokers.rows.length : 1;
  $("topic-dialog").showModal();
  form.elements.name.focus();
});
$("topic-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const body = {
    name: form.elements.name.value,
    partitions: form.elements.partitions.valueAsNumber,
    replication_factor: form.elements.replication_factor.valueAsNumber,
  };
  const made = await act(event.submitter, () => ask("POST", "/api/topics", body), `Topic ${body.name} is created.`);
  if (!made) return;
  $("topic-dialog").close();
  form.reset();
  location.hash = topicLink(body.name);
});
for (const each of document.querySelectorAll("[data-close]")) {
  each.addEventListener("click", () => each.closest("dialog").close());
}

// --- One topic ---

const updatePartitions = table(
  $("partitions"),
  [
    { head: "Partition", kind: "num", text: (row) => String(row.index) },
    {
      head: "Leader",
      kind: "tight",
      build: (cell) => {
        const mark = el("span");
        cell.append(mark);
        return (row) => {
          const missing = row.leader === null;
          if (missing) badge(mark, "none", "bad");
          else {
            mark.className = "";
            setText(mark, `broker ${row.leader}`);
          }
        };
      },
    },
    {
      head: "In-sync replicas",
      build: (cell) => {
        const mark = el("span");
        cell.append(mark);
        return (row) => {
          setText(mark, `${row.isr.join(", ")} of ${row.replicas.join(", ")}`);
          mark.className = row.isr.length < row.replicas.length ? "badge warn" : "";
        };
      },
    },
    { head: "First offset", kind: "num", text: (row) => number(row.start) },
    { head: "End offset", kind: "num", text: (row) => number(row.end) },
    {
      head: "Open transaction",
      kind: "num",
      text: (row) => (row.stable !== null && row.stable < row.end ? `from ${number(row.stable)}` : "–"),
    },
    { head: "Leader epoch", kind: "num", text: (row) => number(row.epoch) },
    { head: "Size", kind: "num", text: (row) => size(row.size_bytes) },
  ],
  (row) => row.index,
  { label: "Partitions" },
);

const currentTopic = () => state.topics && state.topics.rows.find((each) => each.name === state.topic);

function fillPartitions(select, count, withAll) {
  const wanted = count + (withAll ? 1 : 0);
  if (select.options.length === wanted) return;
  const before = select.value;
  const options = withAll ? [el("option", { value: "" }, "all")] : [];
  for (let index = 0; index < count; index++) options.push(el("option", { value: String(index) }, String(index)));
  select.replaceChildren(...options);
  if ([...select.options].some((each) => each.value === before)) select.value = before;
}

function showTopic() {
  if (state.view !== "topic") return;
  const topic = currentTopic();
  setText($("topic-name"), state.topic);
  if (!topic) {
    setText($("topic-facts"), state.topics ? "There is no such topic." : "");
    updatePartitions([], "There is no such topic.");
    return;
  }
  const copies = topic.partitions.length ? topic.partitions[0].replicas.length : 0;
  setText(
    $("topic-facts"),
    `${number(topic.partition_count)} partition${topic.partition_count === 1 ? "" : "s"}, ${copies} replica${copies === 1 ? "" : "s"} · ` +
      `${number(topic.records)} records · ${size(topic.size_bytes)}`,
  );
  fillPartitions($("search").elements.partition, topic.partition_count, topic.partition_count > 1);
  fillPartitions($("produce").elements.partition, topic.partition_count, false);
  updatePartitions(topic.partitions);
  const configs = Object.entries(topic.configs);
  $("topic-configs").replaceChildren(
    ...(configs.length
      ? [el("h2", null, "Settings"), el("dl", { class: "mono" }, ...configs.flatMap(([key, value]) => [el("dt", null, key), el("dd", null, value)]))]
      : []),
  );
  const ends = topic.partitions.map((each) => `${each.start}:${each.end}:${each.stable}`).join();
  if (ends !== search.ends) {
    search.ends = ends;
    if (search.isFollowing()) search.run();
  }
}

// --- Records ---

const updateRecords = table(
  $("records"),
  [
    {
      head: "Offset",
      kind: "num",
      build: (cell, row) => {
        const open = el("button", { type: "button", class: "link", onclick: () => showRecord(row()) });
        cell.append(open);
        return (now) => {
          setText(open, number(now.offset));
          open.setAttribute("aria-label", `Open the record at offset ${now.offset} of partition ${now.partition}`);
          open.disabled = now.kind !== "record";
        };
      },
    },
    { head: "Partition", kind: "num", text: (row) => String(row.partition) },
    { head: "Time", kind: "tight", text: (row) => time(row.timestamp) },
    { head: "Key", kind: "mono clip short", build: (cell) => contentCell(cell, "key") },
    { head: "Value", kind: "mono clip", build: (cell) => contentCell(cell, "value") },
    {
      head: "",
      kind: "tight",
      build: (cell) => {
        const mark = el("span");
        return (row) => {
          const [text, kind] = recordMark(row);
          if (text) {
            badge(mark, text, kind);
            if (!mark.isConnected) cell.append(mark);
          } else mark.remove();
        };
      },
    },
  ],
  (row) => `${row.partition}-${row.offset}-${row.kind}`,
  { label: "Records", dim: (row) => row.kind !== "record" || row.status === "aborted" || row.value.format === "null" },
);

function contentCell(cell, name) {
  const text = el("span", { class: "cut" });
  cell.append(text);
  return (row) => {
    if (row.kind === "commit" || row.kind === "abort") setText(text, name === "value" ? `a transaction's ${row.kind} marker` : "");
    else if (row.kind === "unreadable") setText(text, name === "value" ? row.problem : "");
    else setText(text, row[name].format === "empty" ? "(empty)" : row[name].text);
  };
}

function recordMark(row) {
  if (row.kind === "unreadable") return ["unreadable", "bad"];
  if (row.kind !== "record") return ["marker", ""];
  if (row.status === "aborted") return ["aborted", "bad"];
  if (row.status === "open") return ["open", "warn"];
  if (row.value.format === "null") return ["tombstone", ""];
  if (["text", "empty"].includes(row.value.format)) return ["", ""];
  return [row.value.format, ""];
}

const search = {
  ends: "",
  running: false,
  again: false,
  next: null,
  form: $("search"),
  from() {
    return this.form.elements.from.value;
  },
  isFollowing() {
    return this.from() === "newest" && this.form.elements.live.checked;
  },
  query(offset) {
    const fields = this.form.elements;
    const query = new URLSearchParams({ topic: state.topic, count: fields.count.value });
    if (fields.partition.value !== "") query.set("partition", fields.partition.value);
    else if (fields.partition.options.length === 1) query.set("partition", "0");
    if (offset !== undefined) query.set("offset", offset);
    else if (this.from() === "offset") query.set("offset", fields.offset.value || "0");
    else if (this.from() === "time") query.set("timestamp", String(Math.max(new Date(fields.time.value || 0).getTime(), 0)));
    if (fields.key.value) query.set("key", fields.key.value);
    return query;
  },
  // One request at a time. What changes meanwhile is asked for afterwards.
  async run(offset) {
    // a follow-up of a view that has been left
    if (state.topic === null) return;
    if (this.running) {
      this.again = true;
      return;
    }
    this.running = true;
    const topic = state.topic;
    try {
      const found = await ask("GET", "/api/records?" + this.query(offset));
      if (topic === state.topic) this.show(found);
    } catch (failed) {
      if (topic === state.topic) {
        updateRecords([], "Nothing to show.");
        setText($("record-note"), failed.message);
      }
    } finally {
      this.running = false;
      if (this.again) {
        this.again = false;
        setTimeout(() => this.run(), 300);
      }
    }
  },
  show(found) {
    const fields = this.form.elements;
    const key = fields.key.value;
    let nothing = "This topic has no records yet.\nOpen “Produce a record” above, or send some with a client.";
    if (key) nothing = `No key contains “${key}”.`;
    else if (this.from() !== "newest") nothing = "There are no records from there.";
    updateRecords(found.rows, nothing);
    this.next = found.next_offset;
    $("more").hidden = this.from() === "newest" || found.next_offset === null;
    const notes = [...found.problems];
    if (key && !found.is_end) {
      const place = found.next_offset === null ? "choose a partition" : `searched up to offset ${number(found.next_offset)}`;
      notes.push(`${place}; there is more`);
    }
    setText($("record-note"), notes.join(" · "));
  },
};

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search.run();
});
$("search").addEventListener("change", (event) => {
  const from = search.from();
  for (const each of $("search").querySelectorAll("[data-for]")) each.hidden = each.dataset.for !== from;
  const partition = $("search").elements.partition;
  if (from === "offset" && partition.value === "" && partition.options.length > 1) partition.value = "0";
  if (event.target.name !== "offset" && event.target.name !== "time") search.run();
});
$("more").addEventListener("click", () => search.run(search.next));

async function showRecord(row) {
  const query = new URLSearchParams({ topic: row.topic, partition: row.partition, offset: row.offset });
  let found;
  try {
    found = await ask("GET", "/api/record?" + query);
  } catch (failed) {
    toast(failed.message, true);
    return;
  }
  setText($("record-title"), `${found.topic}-${found.partition} at offset ${number(found.offset)}`);
  const facts = [["Time", `${time(found.timestamp)} (${found.timestamp})`]];
  if (found.producer_id >= 0) facts.push(["Producer", `id ${found.producer_id}, epoch ${found.producer_epoch}, sequence ${found.sequence}`]);
  if (found.status) facts.push(["Transaction", found.status]);
  facts.push(["Compression", found.compression]);
  const parts = [el("dl", null, ...facts.flatMap(([name, text]) => [el("dt", null, name), el("dd", null, text)]))];
  for (const name of ["key", "value"]) parts.push(contentBox(name, found[name]));
  if (found.headers.length) {
    parts.push(el("h2", null, "Headers"));
    const rows = found.headers.flatMap((each) => [el("dt", { class: "mono" }, each.name), el("dd", { class: "mono" }, each.readable)]);
    parts.push(el("dl", null, ...rows));
    const more = found.header_count - found.headers.length;
    if (more > 0) parts.push(el("p", null, `and ${number(more)} more headers`));
  }
  $("record-body").replaceChildren(...parts);
  if (!$("record").open) $("record").showModal();
  $("record-title").focus();
}

function contentBox(name, content) {
  const label = name === "key" ? "Key" : "Value";
  const shown = el("pre", { tabindex: "0", "aria-label": label });
  const head = el("div", { class: "content-head" }, el("strong", null, label), el("span", { class: "badge" }, content.format));
  if (content.size_bytes >= 0) head.append(el("span", { class: "muted" }, size(content.size_bytes)));
  if (content.note) head.append(el("span", { class: "muted" }, content.note));
  if (content.format === "null" || content.format === "empty") return el("div", { class: "content" }, head);
  const choices = el("div", { class: "switch", role: "group", "aria-label": `How to show the ${name}` });
  for (const [text, field] of [["Readable", "readable"], ["Text", "text"], ["Hex", "hex"]]) {
    const button = el("button", { type: "button", class: "small" }, text);
    button.addEventListener("click", () => choose(field));
    button.dataset.field = field;
    choices.append(button);
  }
  function choose(field) {
    shown.textContent = content[field];
    shown.className = field === "hex" || (field === "readable" && content.format === "hex") ? "hex" : "";
    for (const each of choices.children) each.setAttribute("aria-pressed", String(each.dataset.field === field));
  }
  head.append(choices);
  choose("readable");
  return el("div", { class: "content" }, head, shown);
}

// --- Produce ---

$("produce").addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = event.target.elements;
  const content = (name) => (fields[name + "_as"].value === "null" ? null : { as: fields[name + "_as"].value, text: fields[name].value });
  const headers = [];
  for (const line of fields.headers.value.split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf(":");
    if (at < 1) {
      toast(`The header “${line}” has no name; write “name: value”.`, true);
      return;
    }
    headers.push([line.slice(0, at).trim(), line.slice(at + 1).trim()]);
  }
  // an empty key field is no key, unless it is asked for as something else
  const key = fields.key_as.value === "text" && fields.key.value === "" ? null : content("key");
  const body = { topic: state.topic, partition: Number(fields.partition.value), key, value: content("value"), headers };
  await act(
    event.submitter,
    () => ask("POST", "/api/records", body),
    (made) => `Produced to partition ${made.partition} at offset ${number(made.offset)}.`,
  );
  if (!search.isFollowing()) search.run();
});
for (const name of ["key", "value"]) {
  $("produce").elements[name + "_as"].addEventListener("change", (event) => {
    $("produce").elements[name].disabled = event.target.value === "null";
  });
}

// --- Groups ---

const groupBoxes = new Map();

function showGroups() {
  if (!state.groups) return;
  setCount("groups", state.groups.rows.length);
  const wanted = $("group-filter").value.trim().toLowerCase();
  const rows = state.groups.rows.filter((each) => each.id.toLowerCase().includes(wanted));
  const container = $("groups");
  for (const [id, box] of groupBoxes) {
    if (!rows.some((each) => each.id === id)) {
      box.element.remove();
      groupBoxes.delete(id);
    }
  }
  let empty = container.querySelector(":scope > .table > .empty");
  if (!rows.length && !empty) {
    empty = el("p", { class: "empty" });
    container.append(el("div", { class: "table" }, empty));
  }
  if (!rows.length) {
    setText(empty, wanted ? `No group has “${wanted}” in its name.` : "There are no consumer groups yet.\nOne appears when a consumer with a group.id joins or commits an offset.");
  } else if (empty) empty.parentElement.remove();
  for (const row of rows) {
    let box = groupBoxes.get(row.id);
    if (!box) {
      box = groupBox(row.id);
      groupBoxes.set(row.id, box);
      container.append(box.element);
    }
    box.update(row);
  }
}

function groupBox(id) {
  const mark = el("span", { class: "badge" });
  const members = el("span", { class: "muted" });
  const lag = el("span", { class: "lag" });
  const rows = el("div");
  const element = el("div", { class: "table group" }, el("div", { class: "group-head" }, el("strong", null, id), mark, members, lag), rows);
  const update = table(
    rows,
    [
      { head: "Topic", text: (row) => row.topic },
      { head: "Partition", kind: "num", text: (row) => String(row.partition) },
      { head: "Committed", kind: "num", text: (row) => number(row.offset) },
      { head: "End", kind: "num", text: (row) => number(row.end) },
      { head: "Lag", kind: "num", text: (row) => number(row.lag) },
    ],
    (row) => `${row.topic}-${row.partition}`,
    { label: `Offsets of ${id}`, empty: "It has committed no offsets." },
  );
  rows.firstElementChild.className = "";
  return {
    element,
    update(row) {
      badge(mark, row.state, row.state === "Stable" ? "good" : row.state.endsWith("Rebalance") ? "warn" : "");
      const clients = [...new Set(row.members.map((each) => each.client_id))].slice(0, 5).join(", ");
      setText(members, row.members.length ? `${row.members.length} member${row.members.length === 1 ? "" : "s"}: ${clients}` : "no members");
      setText(lag, `Lag ${number(row.lag)}`);
      update(row.offsets);
    },
  };
}
on("groups", showGroups);
$("group-filter").addEventListener("input", showGroups);

// --- Producers and transactions ---

function lastBatch(each) {
  const of = each.offset < 0 ? "none in this epoch" : `${each.offset}, ${each.sequence}`;
  return `${each.topic}-${each.partition}: ${of}${each.open_since === null ? "" : " (open)"}`;
}

const updateProducers = table(
  $("producers"),
  [
    { head: "Producer id", kind: "num", text: (row) => String(row.id) },
    { head: "Epoch", kind: "num", text: (row) => String(row.epoch) },
    { head: "Transactional id", text: (row) => row.transactional_id || "–" },
    { head: "Last record", kind: "tight", text: (row) => time(row.last_timestamp) },
    {
      head: "Partitions: last offset, sequence",
      text: (row) =>
        row.partitions
          .slice(0, 8)
          .map(lastBatch)
          .join(" · ") + (row.partitions.length > 8 ? ` and ${row.partitions.length - 8} more` : ""),
    },
  ],
  (row) => row.id,
  { label: "Producers", empty: "No idempotent producer has written yet.\nKafka's producers are idempotent by default (enable.idempotence)." },
);
on("producers", (producers) => {
  updateProducers(producers.rows);
  setCount("producers", producers.rows.length);
});

const updateTransactions = table(
  $("transactions"),
  [
    { head: "Transactional id", text: (row) => row.id },
    {
      head: "State",
      kind: "tight",
      build: (cell) => {
        const mark = el("span");
        cell.append(mark);
        return (row) => badge(mark, row.state, row.state === "Ongoing" ? "warn" : row.state.endsWith("Abort") ? "bad" : row.state === "CompleteCommit" ? "good" : "");
      },
    },
    { head: "Producer id", kind: "num", text: (row) => String(row.producer_id) },
    { head: "Epoch", kind: "num", text: (row) => String(row.epoch) },
    { head: "Since", kind: "tight", text: (row) => time(row.start_ms > 0 ? row.start_ms : row.update_ms) },
    { head: "Timeout", kind: "num", text: (row) => `${number(row.timeout_ms)} ms` },
    { head: "Partitions", text: (row) => row.partitions.join(", ") + (row.partition_count > row.partitions.length ? ` and ${row.partition_count - row.partitions.length} more` : "") || "–" },
  ],
  (row) => row.id,
  { label: "Transactions", empty: "No producer with a transactional.id has begun yet." },
);
on("transactions", (transactions) => updateTransactions(transactions.rows));

// --- Requests ---

const updateRequests = table(
  $("requests"),
  [
    { head: "Time", kind: "tight", text: (row) => clock(row.at_ms) },
    { head: "Broker", kind: "num", text: (row) => String(row.node_id) },
    { head: "Request", text: (row) => `${apiName(row.api)} v${row.version}` },
    { head: "Client id", text: (row) => row.client_id || "–" },
    { head: "Connection", kind: "mono", text: (row) => row.connection },
    { head: "Correlation id", kind: "num", text: (row) => String(row.correlation_id) },
    { head: "Size", kind: "num", text: (row) => size(row.size_bytes) },
  ],
  (row) => row.number,
  { label: "Requests" },
);

function showRequests() {
  if (state.view !== "requests") return;
  const wanted = $("request-filter").value.trim().toLowerCase();
  const quiet = $("request-quiet").checked;
  const rows = [];
  for (let at = state.requests.length - 1; at >= 0 && rows.length < REQUESTS_SHOWN; at--) {
    const row = state.requests[at];
    if (quiet && QUIET.has(row.api)) continue;
    if (wanted && !`${apiName(row.api)} ${row.api} ${row.client_id} ${row.connection}`.toLowerCase().includes(wanted)) continue;
    rows.push(row);
  }
  updateRequests(rows, state.requests.length ? "No recent request fits the filter." : "No requests yet.\nThey appear here as clients send them.");
  const notes = [];
  if (state.paused) notes.push("Paused");
  if (state.skipped) notes.push(`${number(state.skipped)} requests came too fast to be shown`);
  setText($("request-note"), notes.join(" · "));
}

on("requests", (found) => {
  if (state.paused) return;
  state.skipped += found.skipped;
  state.requests.push(...found.rows);
  state.requests.splice(0, Math.max(state.requests.length - REQUESTS_KEPT, 0));
  showRequests();
});
$("request-filter").addEventListener("input", showRequests);
$("request-quiet").addEventListener("change", showRequests);
$("request-pause").addEventListener("click", () => {
  state.paused = !state.paused;
  $("request-pause").setAttribute("aria-pressed", String(state.paused));
  setText($("request-pause"), state.paused ? "Go on" : "Pause");
  showRequests();
});
$("request-clear").addEventListener("click", () => {
  state.requests = [];
  state.skipped = 0;
  showRequests();
});

// --- Faults ---

const updateFaults = table(
  $("faults"),
  [
    { head: "Requests", text: (row) => (row.api === null ? "every API" : apiName(row.api)) },
    { head: "Effect", text: (row) => row.effect || "a function of the program decides" },
    {
      head: "Only",
      text: (row) =>
        [
          row.topic === null ? null : row.partition === null ? `topic ${row.topic}` : `${row.topic}-${row.partition}`,
          row.node_id === null ? null : `broker ${row.node_id}`,
        ]
          .filter(Boolean)
          .join(", ") || "–",
    },
    { head: "Met", kind: "num", text: (row) => number(row.hits) },
    { head: "Left", kind: "num", text: (row) => (row.remaining === null ? "until removed" : row.remaining === 0 ? "used up" : number(row.remaining)) },
    {
      head: "Actions",
      kind: "num",
      build: (cell, row) => {
        const button = el("button", { type: "button", class: "small" }, "Remove");
        button.addEventListener("click", () => act(button, () => ask("DELETE", "/api/faults", { number: row().number }), "The fault is removed."));
        cell.append(el("div", { class: "row-actions" }, button));
        return (now) => button.setAttribute("aria-label", `Remove the fault for ${now.api === null ? "every API" : apiName(now.api)}`);
      },
    },
  ],
  (row) => row.number,
  { label: "Faults", dim: (row) => row.remaining === 0, empty: "No faults are set.\nSet one above to see how a client copes with it." },
);
on("faults", (faults) => {
  updateFaults(faults.rows);
  setCount("faults", faults.rows.filter((each) => each.remaining !== 0).length);
});
on("brokers", (brokers) => {
  const select = $("fault").elements.node_id;
  if (select.options.length === brokers.rows.length + 1) return;
  select.replaceChildren(el("option", { value: "" }, "all"), ...brokers.rows.map((each) => el("option", { value: each.id }, String(each.id))));
});

function fitFaultForm() {
  const form = $("fault");
  for (const each of form.querySelectorAll("[data-kind]")) each.hidden = !each.dataset.kind.split(" ").includes(form.elements.kind.value);
  for (const each of form.querySelectorAll("[data-often]")) each.hidden = each.dataset.often !== form.elements.often.value;
}
$("fault").addEventListener("change", fitFaultForm);
$("fault").addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = event.target.elements;
  const whole = (name) => (fields[name].value === "" ? null : Number(fields[name].value));
  const body = { api: fields.api.value || null, kind: fields.kind.value, times: fields.often.value === "always" ? null : whole("times"), node_id: whole("node_id") };
  if (fields.topic.value) body.topic = fields.topic.value;
  if (fields.partition.value !== "") body.partition = whole("partition");
  if (body.kind === "error") body.error = fields.error.value;
  if (body.kind === "delay" || body.kind === "throttle") body.ms = whole("ms");
  if (body.kind === "cut") body.bytes = whole("bytes");
  act(event.submitter, () => ask("POST", "/api/faults", body), "The fault is set.");
});

async function fillChoices() {
  const found = await ask("GET", "/api/choices");
  const fields = $("fault").elements;
  fields.api.replaceChildren(...found.apis.map((each) => el("option", { value: each }, apiName(each))), el("option", { value: "" }, "every API"));
  fields.error.replaceChildren(...found.errors.map((each) => el("option", { value: each }, each)));
  fields.error.value = "NOT_LEADER_FOR_PARTITION";
}

// --- Views ---

function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/");
  let view = VIEWS.includes(parts[0]) ? parts[0] : "overview";
  const before = state.view + state.topic;
  state.topic = null;
  if (view === "topics" && parts.length > 1) {
    try {
      state.topic = decodeURIComponent(parts.slice(1).join("/"));
      view = "topic";
    } catch (failed) {
      // not an address of this page: the list of topics
    }
  }
  state.view = view;
  for (const each of document.querySelectorAll("[data-view]")) each.hidden = each.dataset.view !== view;
  for (const each of document.querySelectorAll("[data-nav]")) {
    if (each.dataset.nav === view || (view === "topic" && each.dataset.nav === "topics")) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const shown = document.querySelector(`[data-view="${view}"]`);
  document.title = `${state.topic || shown.querySelector("h1").textContent} – Headrace console`;
  if (view === "topic" && before !== view + state.topic) {
    search.ends = "";
    search.form.reset();
    $("search").elements.partition.replaceChildren();
    $("produce").elements.partition.replaceChildren();
    for (const each of $("search").querySelectorAll("[data-for]")) each.hidden = each.dataset.for !== "newest";
    $("more").hidden = true;
    updateRecords([], "…");
    setText($("record-note"), "");
  }
  showTopics();
  showTopic();
  showGroups();
  showRequests();
  if (before !== "null" && before !== view + state.topic) shown.querySelector("h1").focus();
}
window.addEventListener("hashchange", route);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") {
    const filter = document.querySelector("[data-view]:not([hidden]) [data-filter]");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  } else if (event.key >= "1" && event.key <= String(VIEWS.length)) location.hash = "#/" + VIEWS[Number(event.key) - 1];
});

fitFaultForm();
route();
fillChoices().catch(() => {});
follow();
