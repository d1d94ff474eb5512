// The contrast of every text on the page with what lies behind it, least first (WCAG 2.1).
const parse = (text) => { const found = text.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0]; return found.length === 3 ? [...found, 1] : found; };
const linear = (part) => { const c = part / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) { const color = parse(getComputedStyle(at).backgroundColor); if (color[3] === 1) return color; }
  return [255, 255, 255, 1];
};
const found = [];
for (const element of document.querySelectorAll("body *")) {
  const isText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim().length > 1);
  if (!isText || !element.checkVisibility() || element.closest(".hidden, .skip, svg") || element.disabled) continue;
  const style = getComputedStyle(element);
  const [a, b] = [light(parse(style.color)), light(behind(element))].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), element.textContent.trim().slice(0, 40), element.className || element.tagName]);
}
for (const element of document.querySelectorAll("svg text")) {
  const [a, b] = [light(parse(getComputedStyle(element).fill)), light(behind(element.closest("figure")))].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), element.textContent, "drawing"]);
}
return found.sort((x, y) => x[0] - y[0]);
