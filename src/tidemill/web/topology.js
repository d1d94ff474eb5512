// The topology: a drawing for each sub-topology, layer by layer, topics above and below, stores beside the nodes that use them.

import { fill, h, svg } from "./format.js";

const ROW = 58;
const HEIGHT = 30;
const GAP = 18;
const CHARACTER = 7.3;
const MARGIN = 10;
const COLUMN = 520;

export function drawTopology(element, topology) {
  const users = topicUsers(topology);
  fill(element, topology.subtopologies.map((part) => figure(part, users)));
}

// Which sub-topologies read a topic.
function topicUsers(topology) {
  const found = new Map();
  for (const part of topology.subtopologies)
    for (const node of part.nodes)
      if (node.type === "source") for (const topic of topicsOf(node)) found.set(topic, [...(found.get(topic) ?? []), part.id]);
  return found;
}

function topicsOf(node) {
  if (node.type === "source") return node.topics ?? [node.pattern];
  return [node.topic ?? `chosen by ${node.topic_extractor}`];
}

function figure(part, users) {
  const drawn = layout(part, users);
  const picture = svg("svg", { viewBox: `0 0 ${drawn.width} ${drawn.height}`, width: drawn.width, height: drawn.height, role: "img" });
  const title = `Sub-topology ${part.id}: ${part.nodes.map((node) => node.name).join(", ")}`;
  picture.append(svg("title", {}, title));
  for (const edge of drawn.edges) picture.append(line(edge));
  for (const box of drawn.boxes) picture.append(shape(box));
  return h("figure", { class: drawn.width > COLUMN ? "wide" : null }, h("figcaption", {}, `Sub-topology ${part.id}`), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, picture));
}

// A node's layer is one below the lowest of those before it; layers are put in the order of their predecessors' middles.
function layout(part, users) {
  const boxes = new Map();
  const edges = [];
  const box = (key, kind, label, full) => boxes.get(key) ?? boxes.set(key, { key, kind, label, full, layer: 0, before: [] }).get(key);
  const edge = (from, to) => {
    edges.push({ from, to });
    to.before.push(from);
  };
  for (const node of part.nodes) box(`n:${node.name}`, node.type, label(node.name), node.name);
  for (const node of part.nodes) {
    const here = boxes.get(`n:${node.name}`);
    if (node.type === "source") for (const topic of topicsOf(node)) edge(box(`i:${topic}`, "topic", label(topic), topic), here);
    for (const next of node.successors ?? []) if (boxes.has(`n:${next}`)) edge(here, boxes.get(`n:${next}`));
    if (node.type === "sink") {
      for (const topic of topicsOf(node)) {
        const to = users.get(topic)?.filter((id) => id !== part.id) ?? [];
        edge(here, box(`o:${topic}`, "topic", to.length ? `${label(topic)} → ${to.join(", ")}` : label(topic), topic));
      }
    }
  }
  for (let changed = true, rounds = 0; changed && rounds < boxes.size; rounds++) {
    changed = false;
    for (const { from, to } of edges) if (to.layer <= from.layer) (to.layer = from.layer + 1), (changed = true);
  }
  const layers = [];
  for (const one of boxes.values()) (layers[one.layer] ??= []).push(one);
  for (const one of boxes.values()) one.width = Math.max(64, one.label.length * CHARACTER + 24);
  const full = Math.max(...layers.map((layer) => layer.reduce((sum, one) => sum + one.width + GAP, -GAP)));
  layers.forEach((layer, at) => {
    layer.sort((a, b) => middle(a) - middle(b));
    const width = layer.reduce((sum, one) => sum + one.width + GAP, -GAP);
    let x = MARGIN + (full - width) / 2;
    for (const one of layer) {
      one.x = x;
      one.y = MARGIN + at * ROW;
      x += one.width + GAP;
    }
  });
  const stores = storesOf(part, boxes, full);
  const width = Math.max(full, ...stores.map((one) => one.x + one.width - MARGIN)) + 2 * MARGIN;
  return {
    boxes: [...boxes.values(), ...stores],
    edges: [...edges, ...stores.flatMap((store) => store.of.map((from) => ({ from, to: store, dotted: true })))],
    width,
    height: layers.length * ROW - (ROW - HEIGHT) + 2 * MARGIN,
  };
}

function middle(one) {
  return one.before.length ? one.before.reduce((sum, other) => sum + (other.x ?? 0) + other.width / 2, 0) / one.before.length : 0;
}

function storesOf(part, boxes, full) {
  const found = new Map();
  for (const node of part.nodes)
    for (const store of node.stores ?? []) {
      const here = boxes.get(`n:${node.name}`);
      const known = found.get(store) ?? { kind: "store", label: label(store), full: store, of: [], width: label(store).length * CHARACTER + 26 };
      known.of.push(here);
      found.set(store, known);
    }
  const taken = new Map();
  for (const store of found.values()) {
    const beside = store.of[0];
    const rightmost = Math.max(...[...boxes.values()].filter((one) => one.layer === beside.layer).map((one) => one.x + one.width));
    store.x = Math.max(taken.get(beside.layer) ?? 0, rightmost + 2 * GAP);
    store.y = beside.y;
    taken.set(beside.layer, store.x + store.width + GAP);
  }
  return [...found.values()];
}

function line({ from, to, dotted }) {
  if (dotted) {
    const level = from.y === to.y;
    const [x1, y1] = [from.x + from.width, from.y + HEIGHT / 2];
    const [x2, y2] = level ? [to.x, y1] : [to.x + to.width / 2, to.y < from.y ? to.y + HEIGHT : to.y];
    return svg("path", { class: "edge dotted", d: level ? `M${x1} ${y1}H${x2}` : `M${x1} ${y1}H${x2}V${y2}` });
  }
  const [x1, y1, x2, y2] = [from.x + from.width / 2, from.y + HEIGHT, to.x + to.width / 2, to.y];
  const half = (y1 + y2) / 2;
  const way = x1 === x2 ? `M${x1} ${y1}V${y2 - 4}` : `M${x1} ${y1}C${x1} ${half} ${x2} ${half} ${x2} ${y2 - 4}`;
  const group = svg("g", { class: "edge" });
  group.append(svg("path", { d: way }), svg("path", { class: "tip", d: `M${x2 - 4} ${y2 - 6}L${x2} ${y2}L${x2 + 4} ${y2 - 6}` }));
  return group;
}

function shape(box) {
  const made = svg("g", { class: `node ${box.kind}` });
  const round = box.kind === "topic" ? HEIGHT / 2 : box.kind === "store" ? 3 : 5;
  made.append(svg("title", {}, `${box.kind} ${box.full}`));
  made.append(svg("rect", { x: box.x, y: box.y, width: box.width, height: HEIGHT, rx: round }));
  if (box.kind === "store") made.append(svg("path", { class: "band", d: `M${box.x + 8} ${box.y}V${box.y + HEIGHT}` }));
  made.append(svg("text", { x: box.x + box.width / 2 + (box.kind === "store" ? 4 : 0), y: box.y + HEIGHT / 2 + 4, "text-anchor": "middle" }, box.label));
  return made;
}

// KSTREAM-FLATMAPVALUES-0000000001 is flatmapvalues 1; names that were given stay.
function label(name) {
  const made = name.match(/^K(?:STREAM|TABLE)-(.+?)-(\d{10})(.*)$/);
  return made ? `${made[1].toLowerCase()} ${Number(made[2])}${made[3].replace("-", " ")}` : name;
}
