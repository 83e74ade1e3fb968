// Small elements that all views use.

import { h } from "./dom.js";
import { STATES, fullMoment, moment, stateName } from "./format.js";
import { curl, jsonText, pythonCode } from "./commands.js";

export function badge(state) {
  const { label, tone } = STATES[stateName(state)];
  return h("span", { class: `badge ${tone}` }, label);
}

export const tag = (text, tone = "still") => h("span", { class: `tag ${tone}` }, text);

export const time = (text) => h("time", { datetime: text, title: fullMoment(text) }, moment(text));

export function copyButton(text, label = "Copy") {
  const button = h("button", { type: "button", class: "quiet small", onclick: copy }, label);
  async function copy() {
    const value = typeof text === "function" ? text() : text;
    try {
      await navigator.clipboard.writeText(value);
    } catch {
      // no permission, or not a secure context
      const area = h("textarea", { class: "sr-only", "aria-label": "Copied text" });
      area.value = value;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = label;
    }, 1500);
  }
  return button;
}

// Buttons that copy a call as curl, Python or JSON.
export function copyAs(call) {
  const made = () => (typeof call === "function" ? call() : call);
  return h(
    "span",
    { class: "row tight" },
    copyButton(() => curl(made()), "Copy as curl"),
    copyButton(() => pythonCode(made()), "Python"),
    copyButton(() => jsonText(made()), "JSON"),
  );
}

export function problem(error, again) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("p", {}, h("strong", {}, "Request failed. "), error.message),
    again && h("button", { type: "button", class: "small", onclick: again }, "Try again"),
  );
}

export const empty = (title, ...more) =>
  h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), ...more.map((each) => h("p", {}, each)));

export function tabs(label, items, chosen, onChoose) {
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label });
  const newPanel = () => h("div", { role: "tabpanel", class: "tabpanel", tabindex: "-1" });
  let panel = newPanel();
  const buttons = items.map(({ id, title, count }, index) => {
    const button = h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${id}`,
        "aria-selected": "false",
        tabindex: "-1",
        onclick: () => choose(id),
        onkeydown: (event) => {
          const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (!step) return;
          event.preventDefault();
          const next = items[(index + step + items.length) % items.length];
          choose(next.id);
          buttons[items.indexOf(next)].focus();
        },
      },
      title,
      count === undefined ? null : h("span", { class: "count" }, count),
    );
    list.append(button);
    return button;
  });
  function choose(id) {
    const index = Math.max(
      0,
      items.findIndex((item) => item.id === id),
    );
    buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", String(at === index));
      button.tabIndex = at === index ? 0 : -1;
    });
    const before = panel;
    panel = newPanel(); // a late response for another tab draws into the old panel
    panel.setAttribute("aria-labelledby", `tab-${items[index].id}`);
    before.replaceWith(panel);
    onChoose(items[index].id, panel);
  }
  return { element: h("div", {}, list, panel), choose, start: () => choose(chosen) };
}

export function field(label, control, hint) {
  const id = control.id || (control.id = `field-${(field.next = (field.next ?? 0) + 1)}`);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("p", { class: "hint" }, hint));
}

export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "" && value.length !== 0)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), ...children);

export function download(name, text, type = "application/json") {
  const url = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  const anchor = h("a", { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
