// The drawer with the calls of this page, as commands to copy.

import { h, replace, soon } from "./dom.js";
import { log, onCall } from "./api.js";
import { curl, jsonText, pythonCode } from "./commands.js";
import { duration, precise } from "./format.js";
import { raw } from "./json.js";
import { copyButton } from "./pieces.js";

let chosen = null;
let way = "curl";
const WAYS = { curl: ["curl", curl], python: ["Python", pythonCode], json: ["JSON", jsonText] };

export function callsDrawer() {
  const drawer = document.getElementById("calls");
  const button = document.getElementById("calls-button");
  const list = h("ol", { class: "calls", "aria-label": "Calls, newest first" });
  const detail = h("div", { class: "stack" });
  const show = (open) => {
    drawer.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (open) {
      draw();
      list.querySelector("button")?.focus();
    } else button.focus();
  };
  drawer.append(
    h(
      "div",
      { class: "drawer-head" },
      h("h2", {}, "Calls"),
      h("p", {}, "The calls of this page to the agent, as commands to copy. Your token is not included."),
      h("button", { type: "button", class: "quiet", onclick: () => show(false) }, "Close"),
    ),
    h("div", { class: "drawer-body" }, list, detail),
  );
  drawer.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(false);
  });
  button.addEventListener("click", () => show(drawer.hidden));

  function draw() {
    if (drawer.hidden) return;
    if (!log.includes(chosen)) chosen = log[0] ?? null;
    const focused = list.contains(document.activeElement);
    replace(list, log.map(row));
    if (focused) list.querySelector("[aria-current=true]")?.focus();
    drawDetail();
  }

  function row(entry) {
    const { call, status, milliseconds, at } = entry;
    return h(
      "li",
      {},
      h(
        "button",
        {
          type: "button",
          class: "call",
          "aria-current": String(entry === chosen),
          onclick: () => {
            chosen = entry;
            draw();
          },
        },
        h("span", { class: "mono method" }, call.rpc ? "RPC" : call.method),
        h("span", { class: "mono grow" }, call.rpc ?? call.path),
        h(
          "span",
          { class: typeof status === "number" && status < 400 ? "dim" : status === null ? "dim" : "bad-ink" },
          status ?? "…",
        ),
        h("span", { class: "dim" }, call.stream ? "stream" : milliseconds === null ? "" : duration(milliseconds)),
        h("span", { class: "dim" }, precise(at)),
      ),
    );
  }

  function drawDetail() {
    if (!chosen) return replace(detail, h("p", { class: "dim" }, "No calls yet."));
    const text = WAYS[way][1](chosen.call);
    return replace(
      detail,
      h(
        "div",
        { class: "row" },
        h(
          "div",
          { class: "segments", role: "group", "aria-label": "As" },
          Object.entries(WAYS).map(([id, [label]]) =>
            h(
              "button",
              {
                type: "button",
                "aria-pressed": String(id === way),
                onclick: () => {
                  way = id;
                  drawDetail();
                },
              },
              label,
            ),
          ),
        ),
        copyButton(text),
      ),
      h("pre", { class: "command", tabindex: "0", "aria-label": "The call" }, text),
      chosen.answer !== undefined && [h("h3", {}, "Response"), raw(pretty(chosen.answer), { name: "response.json" })],
    );
  }

  onCall(soon(draw));
}

function pretty(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
