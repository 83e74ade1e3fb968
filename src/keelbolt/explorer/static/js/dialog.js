// A dialog that asks for the input of an action, shows the call while the user types, and sends it.

import { announce, h, replace } from "./dom.js";
import { send } from "./api.js";
import { curl } from "./commands.js";
import { copyButton, field, problem } from "./pieces.js";
import { answerForm } from "./schema.js";

// fields: [{name, label, hint, value, type: text|number|area|json|select, options, required, extra}]. `extra` fields
// are folded. Fields of a `schema` come first; their value is `values.form`.
export function ask({
  title,
  text,
  fields = [],
  schema,
  submit = "Confirm",
  danger = false,
  call,
  perform = send,
  done,
}) {
  const form = schema ? answerForm(schema) : null;
  const controls = fields.map((each) => ({ ...each, control: control(each) }));
  const wrong = h("div", {});
  const command = h("pre", { class: "command", tabindex: "0", "aria-label": "The call" });
  const box = h(
    "details",
    { class: "more" },
    h("summary", {}, "Show the call"),
    h(
      "div",
      { class: "stack" },
      command,
      h(
        "div",
        { class: "row" },
        copyButton(() => command.textContent),
      ),
    ),
  );
  const button = h("button", { class: danger ? "danger" : "primary" }, submit);
  const values = () => ({
    ...Object.fromEntries(controls.map(({ name, type, control: each }) => [name, read(type, each.value)])),
    form: form?.read(),
  });
  const show = () => {
    try {
      command.textContent = curl(call(values()));
    } catch (error) {
      command.textContent = error.message;
    }
  };
  const rows = (some) => some.map(({ label, control: each, hint }) => field(label, each, hint));
  const extra = controls.filter((each) => each.extra);
  const element = h(
    "form",
    {
      class: "stack",
      method: "dialog",
      oninput: show,
      onsubmit: (event) => {
        event.preventDefault();
        run();
      },
    },
    h("h2", { id: "dialog-title" }, title),
    text && h("p", { class: "dim" }, text),
    form?.element,
    rows(controls.filter((each) => !each.extra)),
    extra.length > 0 &&
      h("details", { class: "more" }, h("summary", {}, "More"), h("div", { class: "stack" }, rows(extra))),
    box,
    wrong,
    h("div", { class: "row" }, button, h("button", { type: "button", onclick: () => dialog.close() }, "Not now")),
  );
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, element);
  async function run() {
    button.disabled = true;
    wrong.replaceChildren();
    let answer;
    try {
      const unfit = form?.problems() ?? [];
      if (unfit.length) throw new Error(`${unfit.join("; ")}.`);
      answer = await perform(call(values()));
    } catch (error) {
      replace(wrong, problem(error));
      button.disabled = false;
      return;
    }
    dialog.close();
    announce(`${title}: done`);
    try {
      await done?.(answer);
    } catch (error) {
      announce(error.message); // the action succeeded; the view reloads after the reconnect
    }
  }
  document.body.append(dialog);
  show();
  dialog.showModal();
}

function control({ type = "text", value = "", options, required, name }) {
  if (type === "select")
    return h(
      "select",
      { name },
      options.map(([each, label]) => h("option", { value: each, selected: each === value }, label)),
    );
  if (type === "area" || type === "json")
    return h("textarea", { name, rows: "3", value, required, class: type === "json" ? "mono" : null });
  return h("input", { name, type, value, required, autocomplete: "off" });
}

function read(type, text) {
  if (type === "number") return text === "" ? undefined : Number(text);
  if (type !== "json") return text;
  if (!text.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`Not valid JSON: ${error.message}`);
  }
}
