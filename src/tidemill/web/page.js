// Asks the instance that served this page, every two seconds, and shows what it tells of the group.

import { clock, duration, fill, h, moment, nameOf, number, perSecond, svg } from "./format.js";
import { drawCopies, drawInstances, drawScale, drawTasks, rateOf, summary } from "./group.js";
import { drawStores, query } from "./stores.js";
import { drawTimeline, mayHaveOlder, readOlder } from "./timeline.js";
import { drawTopology } from "./topology.js";

const EVERY_MS = 2000;
const LIMIT_MS = 8000;
const KEPT = 90;
const $ = (id) => document.getElementById(id);

let group = null;
let topology = null;
let stores = null;
let answeredAt = 0;
let explained = null; // the task whose reasons are open
const rates = [];
const states = new Map();

// What the instance answers. Throws only if it does not answer at all.
async function get(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const reply = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
  let body = null;
  try {
    body = await reply.json();
  } catch {
    body = { error: `the instance answers with status ${reply.status}, and its body is not JSON` };
  }
  return { ok: reply.ok, status: reply.status, body };
}

async function look() {
  let reply;
  try {
    reply = await get("/group");
  } catch {
    return showAway();
  }
  if (reply.status === 401) return askForToken();
  if (!reply.ok) return trouble(reply.body.error);
  group = reply.body;
  answeredAt = Date.now();
  $("token").hidden = true;
  $("main").hidden = false;
  $("trouble").hidden = true;
  await lookOnce();
  show();
}

// What does not change while the instance runs.
async function lookOnce() {
  if (topology === null) {
    const reply = await get("/topology").catch(() => null);
    if (reply?.ok) {
      topology = reply.body;
      drawTopology($("drawing"), topology);
    }
  }
  if (stores === null) {
    const reply = await get("/stores").catch(() => null);
    if (reply?.ok) {
      stores = reply.body.stores;
      drawStores($("store"), stores);
      $("query").hidden = !stores.length;
      if (!stores.length) fill($("answer"), h("p", { class: "note" }, "This application has no state."));
    }
  }
}

function show() {
  document.title = `${group.application} · Tidemill`;
  $("application").textContent = group.application;
  $("summary").textContent = summary(group);
  const rate = rateOf(group);
  rates.push(rate);
  if (rates.length > KEPT) rates.shift();
  $("rate").textContent = perSecond(rate);
  drawSpark();
  drawInstances($("instances"), group);
  drawScale($("scale"), group.scale);
  drawTasks($("tasks"), group, topology, explain);
  drawCopies($("copies"), group);
  drawTimeline($("timeline"), group);
  $("older").hidden = !mayHaveOlder(group);
  const asked = group.instances.find((one) => one.host === group.asked) ?? group.instances[0];
  if (asked?.version) $("version").textContent = `Tidemill ${asked.version} · ${asked.settings.guarantee} · ${asked.settings.assignor} · as of ${clock(group.now_ms)}`;
  linkSparkUi(asked?.spark_ui);
  tellNews();
}

// The address comes from an instance; only one that a browser opens as a page becomes a link.
function linkSparkUi(address) {
  const link = $("spark-ui");
  link.hidden = !/^https?:\/\//.test(address ?? "");
  if (!link.hidden) link.href = address;
}

function drawSpark() {
  const most = Math.max(...rates, 1);
  const points = rates.map((rate, at) => `${(240 - (rates.length - 1 - at) * (240 / (KEPT - 1))).toFixed(1)},${(46 - (rate / most) * 42).toFixed(1)}`);
  $("spark").replaceChildren(svg("polyline", { points: points.join(" ") }));
}

// Changes of state, for those who hear the page.
function tellNews() {
  const news = [];
  for (const one of group.instances) {
    const now = one.away === null ? one.state.toLowerCase() : "away";
    if (states.has(nameOf(one)) && states.get(nameOf(one)) !== now) news.push(`${nameOf(one)} is ${now}`);
    states.set(nameOf(one), now);
  }
  if (news.length) $("news").textContent = news.join(", ");
}

function trouble(...parts) {
  fill($("trouble"), parts);
  $("trouble").hidden = false;
}

function showAway() {
  const others = (group?.instances ?? []).filter((one) => one.host && one.host !== group.asked && one.away === null);
  const since = answeredAt ? ` for ${duration((Date.now() - answeredAt) / 1000)}` : "";
  trouble(h("span", {}, `${location.host} has not answered${since}; the page tries again every ${number(EVERY_MS / 1000)} s and shows the last known state.`),
    others.length ? h("span", {}, " Other instances have this page too: ", others.flatMap((one, at) => [at ? ", " : "", h("a", { href: `${location.protocol}//${one.host}/` }, one.host)])) : null);
  if (!group) $("summary").textContent = "The instance does not answer.";
}

function askForToken() {
  const had = sessionStorage.getItem("token") !== null;
  $("main").hidden = true;
  $("summary").textContent = "A token is needed.";
  if (had || $("token").hidden) $("token-problem").textContent = had ? "This instance has another token." : "";
  sessionStorage.removeItem("token");
  if ($("token").hidden) {
    $("token").hidden = false;
    $("token-text").focus();
  }
}

async function explain(task) {
  explained = task;
  $("why-title").textContent = `Task ${task}`;
  fill($("why-body"), h("p", { class: "waiting" }, "Loading…"));
  if (!$("why").open) $("why").showModal();
  let reply;
  try {
    reply = await get(`/decisions?task=${encodeURIComponent(task)}`);
  } catch {
    reply = { ok: false, body: { error: "The instance does not answer." } };
  }
  if (task !== explained) return; // another one was asked for meanwhile
  if (!reply.ok) return fill($("why-body"), h("p", { class: "problem" }, reply.body.error));
  const found = reply.body.decisions;
  fill($("why-body"),
    h("p", { class: "note" }, `As decided at ${moment(reply.body.at_ms, Date.now())}`),
    found.length ? found.map(decision) : h("p", {}, "The newest assignment does not contain this task."));
}

function decision(one) {
  return h("article", { class: "decision" },
    h("h3", {}, one.role, one.on ? ` on ${one.on}` : "", h("span", { class: "mark" }, one.rule)),
    h("p", {}, one.reason),
    one.candidates.length
      ? h("table", { class: "entries" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Candidate"), h("th", { scope: "col", class: "right" }, "Lag"), h("th", { scope: "col", class: "right" }, "Rank"))),
          h("tbody", {}, one.candidates.map((candidate) => h("tr", {}, h("th", { scope: "row" }, candidate.instance), h("td", { class: "right" }, candidate.lag === -2 ? "runs it" : candidate.lag === -3 ? "unknown" : number(candidate.lag)), h("td", { class: "right" }, number(candidate.rank))))))
      : null,
    h("p", { class: "note" }, one.source));
}

$("why-close").addEventListener("click", () => $("why").close());
// The browser would give the focus back to the button that opened the dialog, which the page may have drawn again since.
$("why").addEventListener("close", () => document.querySelector(`[data-key="task-${CSS.escape(explained)}"]`)?.focus({ preventScroll: true }));
$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token-text").value.trim());
  $("token-text").value = "";
  look();
});
$("query").addEventListener("submit", (event) => {
  event.preventDefault();
  query(get, $("query"), $("answer"), event.submitter?.value ?? "key");
});
$("older").addEventListener("click", async () => {
  $("older").disabled = true;
  $("older-note").textContent = await readOlder(get).catch(() => "The instance does not answer.");
  $("older").disabled = false;
  show();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });

async function forEver() {
  for (;;) {
    if (!document.hidden) await look().catch((problem) => trouble(`Error in this page: ${problem.message}`));
    await new Promise((then) => setTimeout(then, EVERY_MS));
  }
}

forEver();
