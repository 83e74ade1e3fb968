// Creates elements from data. Text is always inserted as text; no function accepts HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected")
      element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Announces a text to screen readers.
export function announce(text) {
  const place = document.getElementById("announcer");
  place.textContent = "";
  requestAnimationFrame(() => {
    place.textContent = text;
  });
}

// Drawing waits while the pointer is pressed: a click is lost if its target is replaced before the release.
let pressed = false;
let waiting = [];
const release = () => {
  pressed = false;
  const works = waiting;
  waiting = [];
  for (const work of works) work();
};
addEventListener("pointerdown", () => (pressed = true), true);
for (const name of ["pointerup", "pointercancel", "blur"]) addEventListener(name, () => setTimeout(release), true);

// Returns a function that runs `work` once in the next frame, even if it is called several times.
export function soon(work) {
  let asked = false;
  const run = () => {
    if (pressed) waiting.push(run);
    else {
      asked = false;
      work();
    }
  };
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(run);
  };
}

export function later(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}
