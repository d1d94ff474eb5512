// Rebalances: what moved, why, and what it cost.

import { clock, duration, fill, h, hasDate, moment, plural } from "./format.js";

const opened = new Set();
const MANY = 30; // of an instance in /group: if one has so many, it may have led more
let older = null; // the group's history, once it was asked for
let shown = "";

export function drawTimeline(element, group) {
  const pauses = pausesOf(group);
  const all = withOlder(group.rebalances);
  const state = JSON.stringify([all, [...pauses]]);
  if (state === shown) return; // what is being read stays where it is
  shown = state;
  if (!all.length) {
    fill(element, h("li", { class: "note" }, "None of the instances that answer has led a rebalance yet."));
    return;
  }
  const rounds = withFollowUps(all);
  const entries = rounds.map((round, at) => entry(round, costOf(round.led, rounds[at + 1]?.led, pauses), group.now_ms));
  fill(element, entries.reverse());
}

export function mayHaveOlder(group) {
  const led = new Map();
  for (const one of group.rebalances) led.set(one.led_by, (led.get(one.led_by) ?? 0) + 1);
  return older === null && [...led.values()].some((count) => count >= MANY);
}

// Reads the last hundred of the group; what is missing, as a sentence.
export async function readOlder(get) {
  const reply = await get("/history?of=group");
  if (!reply.ok) return reply.body.error;
  older = reply.body.rebalances;
  return reply.body.left_out.map((one) => `What ${one.host} has led is missing: ${one.why}.`).join(" ");
}

function withOlder(newest) {
  if (older === null || !newest.length) return older ?? newest;
  const known = new Set(newest.map(nameOf));
  return [...older.filter((led) => led.at_ms < newest.at(-1).at_ms && !known.has(nameOf(led))), ...newest].sort((a, b) => a.at_ms - b.at_ms);
}

const nameOf = (led) => `${led.at_ms}-${led.led_by}`;

// Follow-ups in which nothing new was decided belong to the rebalance that has asked for them.
function withFollowUps(all) {
  const rounds = [];
  for (const led of all) {
    const isNews = led.moves.length || led.joined.length || led.left.length || led.remarks.length;
    if (isNews || !rounds.length) rounds.push({ led, then: [] });
    else rounds.at(-1).then.push(led);
  }
  return rounds;
}

// What members say of rebalances that are over: when, and how long each task went without a micro-batch.
function pausesOf(group) {
  return group.instances.flatMap((one) => (one.threads ?? []).flatMap((thread) => thread.rebalances));
}

function costOf(led, next, pauses) {
  const mine = pauses.filter((past) => past.at_ms >= led.at_ms && (next === undefined || past.at_ms < next.at_ms));
  let worst = null;
  for (const past of mine)
    for (const [task, paused] of Object.entries(past.paused_ms)) if (worst === null || paused > worst.paused) worst = { task, paused };
  return worst;
}

function entry({ led, then }, worst, nowMs) {
  const last = then.at(-1) ?? led;
  const key = nameOf(led);
  const told = [
    ...led.left.map((name) => h("strong", { class: "bad" }, `${name} left`)),
    ...led.joined.map((name) => h("strong", {}, `${name} joined`)),
    counted(led),
  ].filter(Boolean);
  const facts = [`led by ${led.led_by}`];
  if (then.length) facts.push(`${plural(then.length, "follow-up")} in ${duration((last.at_ms - led.at_ms) / 1000)}`);
  if (last.hands_over) facts.push("the old owners have to let go first");
  else if (last.next_ms !== null) facts.push(`next rebalance at ${clock(last.next_ms)}`);
  else if (last.stable) facts.push("stable");
  if (worst) facts.push(`longest pause ${worst.paused < 1000 ? `${worst.paused} ms` : duration(worst.paused / 1000)}, task ${worst.task}`);
  return h("li", { class: last.stable ? "stable" : "open" },
    h("time", { datetime: hasDate(led.at_ms) ? new Date(led.at_ms).toISOString() : null }, moment(led.at_ms, nowMs)),
    h("div", {},
      h("p", { class: "told" }, told.flatMap((part, at) => (at ? [", ", part] : [part]))),
      h("p", { class: "note" }, facts.join(" · ")),
      led.remarks.map((remark) => h("p", { class: "problem" }, remark)),
      led.moves.length ? details(led, key) : null));
}

function counted(led) {
  const count = (test) => led.moves.filter(test).length;
  const parts = [
    [count((move) => move.role === "active" && move.from !== null), (n) => `${plural(n, "task")} moved`],
    [count((move) => move.role === "active" && move.from === null), (n) => `${plural(n, "task")} started`],
    [count((move) => move.role === "warm-up"), (n) => `${plural(n, "warm-up")} started`],
    [count((move) => move.role === "standby" && move.to !== null), (n) => `${plural(n, "standby", "standbys")} started`],
    [count((move) => move.role === "standby" && move.to === null), (n) => `${plural(n, "copy", "copies")} removed`],
  ];
  const words = parts.filter(([n]) => n).map(([n, say]) => say(n));
  return words.length ? words.join(", ") : "nothing moved";
}

function details(led, key) {
  return h("details", { open: opened.has(key), on: { toggle: (event) => (event.target.open ? opened.add(key) : opened.delete(key)) } },
    h("summary", { "data-key": key }, "What moved, and why"),
    h("ul", { class: "moves" }, led.moves.map(move)),
    led.more_moves ? h("p", { class: "note" }, `and ${led.more_moves} more`) : null);
}

function move(one) {
  const way = one.role !== "active"
    ? one.to !== null ? `${one.role} on ${one.to}` : `copy on ${one.from} removed`
    : one.from !== null ? `${one.from} → ${one.to}` : `to ${one.to}`;
  return h("li", {},
    h("p", {}, h("span", { class: "chip" }, one.task), " ", way, one.had_copy ? h("span", { class: "mark" }, "had a copy") : null),
    one.reason ? h("p", { class: "reason" }, one.reason) : null);
}
