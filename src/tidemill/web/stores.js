// The query box: one key, or a range, of a store of the application.

import { clock, fill, h, hasDate, number, plural } from "./format.js";

const LIMIT = 50;

export function drawStores(select, stores) {
  const before = select.value;
  fill(select, stores.map((store) => h("option", { value: store.name }, `${store.name} (${store.key} → ${store.value})`)));
  if (stores.some((store) => store.name === before)) select.value = before;
}

export async function query(get, form, answer, what) {
  const store = form.querySelector("#store").value;
  const [key, last] = [form.querySelector("#key").value, form.querySelector("#last").value];
  if (!store) return fill(answer, h("p", { class: "problem" }, "This application has no store."));
  const began = performance.now();
  const button = form.querySelector(`button[value="${what}"]`);
  button.disabled = true;
  fill(answer, h("p", { class: "waiting" }, "Asking…"));
  try {
    if (what === "key") await one(get, answer, store, key, began);
    else await range(get, answer, store, key, last, began);
  } catch {
    silent(answer);
  } finally {
    button.disabled = false;
  }
}

async function one(get, answer, store, key, began) {
  const reply = await get(`/stores/${encodeURIComponent(store)}/${encodeURIComponent(key)}`);
  if (!reply.ok) return refused(answer, reply);
  fill(answer, rows([reply.body], [`from partition ${reply.body.partition}`, ...staleness(reply.body), took(began)]));
}

async function range(get, answer, store, first, last, began) {
  const parameters = new URLSearchParams({ limit: LIMIT });
  if (first) parameters.set("from", first);
  if (last) parameters.set("to", last);
  const reply = await get(`/stores/${encodeURIComponent(store)}?${parameters}`);
  if (!reply.ok) return refused(answer, reply);
  const found = reply.body.entries;
  const notes = [plural(found.length, "entry", "entries"), ...staleness(reply.body), took(began)];
  if (!found.length) return fill(answer, h("p", { class: "note" }, "No entry in this range."));
  fill(answer, rows(found, notes),
    reply.body.next === null ? null : h("button", { type: "button", class: "second", on: { click: () => range(get, answer, store, reply.body.next, last, performance.now()).catch(() => silent(answer)) } }, "The next ones"));
}

function rows(entries, notes) {
  const timed = entries.some((entry) => entry.timestamp !== undefined);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results" },
    h("table", { class: "entries" },
      h("caption", {}, notes.join(" · ")),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Key"), h("th", { scope: "col" }, "Value"), timed ? h("th", { scope: "col" }, "Timestamp") : null)),
      h("tbody", {}, entries.map((entry) => h("tr", {}, h("th", { scope: "row" }, text(entry.key)), h("td", {}, text(entry.value)), timed ? h("td", {}, when(entry.timestamp)) : null)))));
}

function text(value) {
  return typeof value === "string" ? value : typeof value === "number" && Number.isSafeInteger(value) ? number(value) : JSON.stringify(value);
}

function when(ms) {
  if (ms === undefined) return "";
  return hasDate(ms) ? `${new Date(ms).toISOString().slice(0, 10)} ${clock(ms)}` : clock(ms);
}

function staleness(body) {
  return body.stale_by ? [`${plural(body.stale_by, "offset")} behind the active`] : [];
}

function took(began) {
  return `${Math.round(performance.now() - began)} ms`;
}

function silent(answer) {
  fill(answer, h("p", { class: "problem" }, "The instance does not answer."));
}

function refused(answer, reply) {
  fill(answer, h("p", { class: reply.status === 404 ? "note" : "problem" }, reply.body.error));
}
