// Words, numbers and elements. Everything that comes from an instance becomes text, never markup.

export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name === "style") for (const [property, setting] of Object.entries(value)) made.style.setProperty(property, setting);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Replaces what an element holds; what had the focus (by its data-key) keeps it, and what was scrolled stays where it was.
export function fill(element, ...children) {
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = [...element.querySelectorAll(".scroll[data-key]")].map((one) => [one.dataset.key, one.scrollTop, one.scrollLeft]);
  element.replaceChildren(...children.flat().filter(Boolean));
  for (const [of, top, left] of scrolled) element.querySelector(`[data-key="${of}"]`)?.scrollTo({ top, left, behavior: "instant" });
  if (key !== undefined) element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

const whole = new Intl.NumberFormat("en");

export function number(value) {
  return value === null || value === undefined ? "–" : whole.format(Math.round(value));
}

export function perSecond(value) {
  if (value === null || value === undefined) return "–";
  return value >= 10 || value === 0 ? number(value) : value.toFixed(1);
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 10_000 ? `${number(value)} ms` : duration(value / 1000);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 1) return "<1 s";
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

// What timestamps and other instances name as a time may be none of the calendar: its number is shown then.
export function hasDate(ms) {
  return !Number.isNaN(new Date(ms).getTime());
}

export function clock(ms) {
  return hasDate(ms) ? new Date(ms).toLocaleTimeString("en-GB") : `${ms} ms`;
}

// With the day if it is not the day of nowMs: the history goes back over restarts.
export function moment(ms, nowMs) {
  if (!hasDate(ms)) return clock(ms);
  const [then, now] = [new Date(ms), new Date(nowMs)];
  if (then.toDateString() === now.toDateString()) return clock(ms);
  const year = then.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return `${then.toLocaleDateString("en-GB", { day: "numeric", month: "short", year })} ${clock(ms)}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function nameOf(instance) {
  return instance.host ?? instance.process.slice(0, 8);
}

// What tells instances apart: the port where they share a host, the host where they share a port.
export function shortNames(names) {
  const parts = names.map((name) => name.match(/^(.*):(\d+)$/));
  if (names.length < 2 || parts.some((part) => part === null)) return new Map(names.map((name) => [name, name]));
  const oneHost = new Set(parts.map((part) => part[1])).size === 1;
  const onePort = new Set(parts.map((part) => part[2])).size === 1;
  return new Map(names.map((name, at) => [name, oneHost ? `:${parts[at][2]}` : onePort ? parts[at][1] : name]));
}

export function byTask(left, right) {
  const [a, b] = [left.split("_").map(Number), right.split("_").map(Number)];
  return a[0] - b[0] || a[1] - b[1];
}
