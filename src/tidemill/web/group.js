// The group: instances, tasks over instances, and copies on their way.

import { byTask, duration, fill, h, milliseconds, nameOf, number, perSecond, plural, shortNames } from "./format.js";

const largest = new Map(); // how far behind each copy was at most since this page looks: what its bar is a share of

export function summary(group) {
  const here = group.instances.filter((one) => one.away === null);
  const away = group.instances.length - here.length;
  const running = here.filter((one) => one.state === "RUNNING").length;
  const parts = [`${running} of ${plural(group.instances.length, "instance")} running`];
  if (away) parts.push(`${away} away`);
  const orphans = orphansOf(group);
  if (orphans.length) parts.push(`${plural(orphans.length, "task")} not running`);
  parts.push(plural(activeOf(group).length, "active task"));
  const copies = copiesOf(group);
  if (copies.length) parts.push(plural(copies.length, "copy", "copies"));
  parts.push(group.leader ? `led by ${group.leader}` : activeOf(group).length ? "the leader does not answer" : "no assignment yet");
  return parts.join(" · ");
}

export function activeOf(group) {
  return group.instances.flatMap((one) => (one.threads ?? []).flatMap((thread) => thread.active.map((task) => ({ ...task, on: nameOf(one) }))));
}

// Tasks of the newest assignment that nobody who answers runs: their instance is away, or waits for the one before it to let go.
export function orphansOf(group) {
  const known = new Set(activeOf(group).map((task) => task.task));
  return group.instances.flatMap((one) =>
    one.assigned.filter((task) => !known.has(task)).map((task) => ({ task, on: nameOf(one), kind: one.away === null ? "coming" : "gone" })));
}

export function copiesOf(group) {
  return group.instances.flatMap((one) => (one.threads ?? []).flatMap((thread) => thread.standby.map((task) => ({ ...task, on: nameOf(one) }))));
}

export function rateOf(group) {
  return group.instances.flatMap((one) => one.threads ?? []).reduce((sum, thread) => sum + thread.records_per_s, 0);
}

export function drawInstances(element, group) {
  const cards = group.instances.map((one) => (one.away === null ? instance(one, group) : absent(one, group)));
  const silent = group.silent.map((client) =>
    h("article", { class: "instance" },
      h("h3", {}, client.process.slice(0, 8)),
      h("p", { class: "state" }, "has no address"),
      h("p", { class: "note" }, `${plural(client.active.length, "active task")}; start it with --serve HOST:PORT to see more`)));
  fill(element, cards, silent);
}

function instance(one, group) {
  const sum = (what) => one.threads.reduce((total, thread) => total + (thread[what] ?? 0), 0);
  const most = (what) => one.threads.reduce((found, thread) => (thread[what] === null ? found : Math.max(found ?? 0, thread[what])), null);
  const since = one.threads.map((thread) => thread.last_assignment_s).filter((seconds) => seconds !== null);
  const active = one.threads.flatMap((thread) => thread.active).length;
  const copies = one.threads.flatMap((thread) => thread.standby).length;
  const drains = one.drain?.phase === "draining";
  const restores = Boolean(one.restoring) && one.state === "REBALANCING";
  const state = drains ? "draining" : restores ? "restoring" : one.state.toLowerCase().replace("_", " ");
  const trouble = one.error ?? (drains ? drainWords(one.drain) : restores ? restoringWords(one.restoring) : one.ready ? null : one.why.join("; "));
  return h("article", { class: `instance ${one.state === "RUNNING" && !drains ? "" : one.error ? "bad" : "busy"}` },
    h("h3", {}, one.host ? h("a", { href: `${location.protocol}//${one.host}/`, "data-key": `instance-${one.host}` }, one.host) : nameOf(one)),
    h("p", { class: "state" }, state, nameOf(one) === group.leader ? h("span", { class: "mark" }, "leads") : null,
      one.host === group.asked ? h("span", { class: "mark" }, "this page") : null,
      one.threads.length > 1 ? h("span", { class: "note" }, `${one.threads.filter((thread) => thread.running).length} of ${one.threads.length} threads`) : null),
    h("dl", {},
      figure("records/s", perSecond(sum("records_per_s"))),
      figure("latency", milliseconds(most("latency_ms"))),
      figure("micro-batch", milliseconds(most("batch_ms"))),
      figure("active tasks", String(active)),
      figure("copies", String(copies)),
      figure("assigned", since.length ? `${duration(Math.min(...since))} ago` : "not yet")),
    one.threads.length > 1 ? h("ul", { class: "threads" }, one.threads.map(thread)) : null,
    trouble ? h("p", { class: one.error ? "problem" : "pending" }, trouble) : null,
    lossWords(sum) ? h("p", { class: "pending" }, lossWords(sum)) : null);
}

// What is missing from the results, or was computed again, since the instance started; empty if nothing.
function lossWords(sum) {
  const parts = [
    [sum("dropped"), (n) => `${plural(n, "record")} dropped`],
    [sum("skipped"), (n) => `${number(n)} of them skipped by an exception handler`],
    [sum("lost_batches"), (n) => `${plural(n, "micro-batch", "micro-batches")} failed and run again`],
  ];
  return parts.filter(([n]) => n).map(([n, say]) => say(n)).join(", ");
}

export function drawScale(element, scale) {
  element.hidden = !scale;
  if (!scale) return;
  element.className = scale.wanted === scale.present ? "scale" : "scale changes";
  element.textContent = `Wanted: ${plural(scale.wanted, "instance")}, present: ${number(scale.present)}. ${scale.why[0].toUpperCase()}${scale.why.slice(1)}.`;
}

function drainWords(told) {
  return `${plural(told.active, "active task")} and ${plural(told.standby, "copy", "copies")} are still to be handed over`;
}

function restoringWords(told) {
  const left = told.offsets_left === null ? "how much is left is not known yet" : `${number(told.offsets_left)} offsets left`;
  const speed = told.offsets_per_s === null ? "" : `, ${perSecond(told.offsets_per_s)}/s`;
  const time = told.seconds_left === null ? "time left unknown" : `${duration(told.seconds_left)} left`;
  return `${plural(told.tasks.length, "task")} to restore: ${left}${speed}, ${time}`;
}

function thread(one) {
  const tasks = one.active.map((task) => task.task).sort(byTask);
  const told = tasks.length > 8 ? `${tasks.slice(0, 8).join(" ")} and ${tasks.length - 8} more` : tasks.join(" ") || "no active task";
  return h("li", {}, h("span", {}, `thread ${one.number}`), h("span", { class: "chip" }, told), h("span", { class: "right" }, `${perSecond(one.records_per_s)}/s`));
}

function absent(one, group) {
  return h("article", { class: "instance bad away" },
    h("h3", {}, nameOf(one)),
    h("p", { class: "state" }, "away", one.host === group.leader ? h("span", { class: "mark" }, "led") : null),
    h("p", { class: "problem" }, one.away),
    h("p", { class: "note" }, "It is in the newest assignment. If it is gone, its tasks move when its session ends."));
}

function figure(what, value) {
  return h("div", {}, h("dt", {}, what), h("dd", {}, value));
}

// --- tasks over instances -----------------------------------------------------------------------------------------------

export function drawTasks(element, group, topology, explain) {
  const names = group.instances.map(nameOf);
  const short = shortNames(names);
  const rows = new Map();
  const row = (task) => rows.get(task) ?? rows.set(task, { cells: new Map(), rate: null, behind: null }).get(task);
  for (const task of activeOf(group)) {
    const found = row(task.task);
    found.cells.set(task.on, task.phase === "running" ? { kind: "active" } : { kind: "restoring", lag: task.lag, left: task.seconds_left });
    found.rate = (found.rate ?? 0) + task.records_per_s;
    found.behind = task.behind === null ? found.behind : (found.behind ?? 0) + task.behind;
  }
  for (const orphan of orphansOf(group)) row(orphan.task).cells.set(orphan.on, { kind: orphan.kind });
  for (const copy of copiesOf(group)) row(copy.task).cells.set(copy.on, { kind: copy.role, lag: copy.lag, left: copy.seconds_left });
  if (!rows.size) {
    fill(element, h("p", { class: "note" }, "No task is assigned yet."));
    return;
  }
  const bySub = Map.groupBy ? Map.groupBy([...rows.keys()].sort(byTask), subOf) : grouped([...rows.keys()].sort(byTask));
  const away = new Set(group.instances.filter((one) => one.away !== null).map(nameOf));
  fill(element,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tasks over instances", "data-key": "tasks" },
      h("table", { class: "matrix" },
        h("caption", {}, h("span", {}, "Tasks"), legend(["active", "restoring", "warm-up", "standby", ...new Set(orphansOf(group).map((orphan) => orphan.kind))])),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Task"),
          names.map((name) => h("th", { scope: "col", class: away.has(name) ? "cell away" : "cell", title: name }, short.get(name))),
          h("th", { scope: "col", class: "right" }, "rec/s"), h("th", { scope: "col", class: "right" }, "behind"))),
        [...bySub].map(([sub, tasks]) => h("tbody", {},
          h("tr", { class: "sub" }, h("th", { colspan: names.length + 3, scope: "rowgroup" }, subName(sub, topology))),
          tasks.map((task) => taskRow(task, rows.get(task), names, short, explain)))))));
}

const subOf = (task) => task.split("_")[0];

function grouped(tasks) {
  const found = new Map();
  for (const task of tasks) found.set(subOf(task), [...(found.get(subOf(task)) ?? []), task]);
  return found;
}

function subName(sub, topology) {
  const nodes = topology?.subtopologies.find((part) => String(part.id) === sub)?.nodes ?? [];
  const stores = [...new Set(nodes.flatMap((node) => node.stores ?? []))];
  return stores.length ? `Sub-topology ${sub}, state in ${stores.join(", ")}` : `Sub-topology ${sub}`;
}

function taskRow(task, row, names, short, explain) {
  return h("tr", {},
    h("th", { scope: "row" }, h("button", { type: "button", class: "task", "data-key": `task-${task}`, "aria-label": `Why task ${task} is where it is`, on: { click: () => explain(task) } }, task)),
    names.map((name) => h("td", { class: "cell" }, square(row.cells.get(name)))),
    h("td", { class: "right" }, perSecond(row.rate)),
    h("td", { class: "right" }, number(row.behind)));
}

function square(cell) {
  if (!cell) return h("span", { class: "hidden" }, "nothing");
  const lag = cell.kind !== "active" && cell.lag ? `, ${number(cell.lag)} behind` : "";
  const told = cell.kind === "gone" ? "was active here" : cell.kind === "coming" ? "to become active here" : cell.kind + lag;
  return h("span", { class: `square ${cell.kind}`, title: told }, h("span", { class: "hidden" }, told));
}

function legend(kinds) {
  return h("span", { class: "legend", "aria-hidden": "true" },
    kinds.map((kind) => h("span", {}, h("span", { class: `square ${kind}` }), kind)));
}

// --- on their way --------------------------------------------------------------------------------------------------------

export function drawCopies(element, group) {
  const restoring = activeOf(group).filter((task) => task.phase !== "running").map((task) => ({ ...task, role: "restoring" }));
  const order = { restoring: 0, "warm-up": 1, standby: 2 };
  const rows = [...restoring, ...copiesOf(group)].sort((a, b) => order[a.role] - order[b.role] || byTask(a.task, b.task));
  if (!rows.length) {
    largest.clear();
    fill(element, activeOf(group).length === 0 ? null : h("p", { class: "note" }, "No copies. With num.standby.replicas another instance keeps a copy of each store and takes over at once."));
    return;
  }
  const short = shortNames(group.instances.map(nameOf));
  const acceptable = group.instances.find((one) => one.settings)?.settings.acceptable_lag ?? 0;
  const keys = new Set();
  const items = rows.map((row) => {
    const key = `${row.role}-${row.task}-${row.on}`;
    keys.add(key);
    const least = row.role === "standby" ? acceptable : 0; // a standby is near its end all the time: little is shown as little
    const most = Math.max(largest.get(key) ?? least, row.lag ?? 0);
    largest.set(key, most);
    const done = row.lag === null || row.lag === undefined ? 0 : most ? 1 - row.lag / most : 1;
    return h("li", { class: row.role },
      h("span", { class: "what" }, h("strong", {}, row.task), ` ${row.role} on `, h("span", { class: "where" }, short.get(row.on) ?? row.on)),
      h("span", { class: "bar", role: "progressbar", "aria-label": `${row.task} on ${row.on}`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(done * 100) },
        h("span", { style: { width: `${Math.round(done * 100)}%` } })),
      h("span", { class: "left" }, left(row)));
  });
  for (const key of largest.keys()) if (!keys.has(key)) largest.delete(key);
  fill(element, h("h3", {}, "Copies"), h("ul", { class: "copies scroll", "data-key": "copies", tabindex: "0", "aria-label": "Copies" }, items));
}

function left(row) {
  if (row.lag === null || row.lag === undefined) return "not read yet";
  if (row.lag === 0) return "at the end";
  const time = row.seconds_left === null || row.seconds_left === undefined ? "" : `, ${duration(row.seconds_left)} left`;
  return `${number(row.lag)} behind${time}`;
}
