// The message form: text, JSON, files and a skill, for a new task or an existing one.

import { h, replace } from "../dom.js";
import { examplesOf, inputSchema } from "../agent_card.js";
import { attachments } from "../attachments.js";
import { shortId } from "../format.js";
import { field } from "../pieces.js";
import { schemaForm, validate } from "../schema.js";

export function composer(card, { start, onSend }) {
  let schema = null;
  let form = null;
  let first = true; // the values of the URL apply until the user selects others
  const skill = h(
    "select",
    { onchange: choose },
    h("option", { value: "" }, "Let the agent choose"),
    (card.skills ?? []).map((each) => h("option", { value: each.id, selected: each.id === start.skill }, each.name)),
  );
  const text = h("textarea", {
    rows: "4",
    placeholder: "Message to the agent",
    value: start.text ?? "",
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
    },
  });
  const examples = h("div", { class: "examples" });
  const json = h("textarea", { rows: "5", class: "mono", spellcheck: "false", placeholder: "{ }", oninput: check });
  const formPlace = h("div", {});
  const problems = h("ul", { class: "problems", "aria-live": "polite" });
  const jsonBox = h(
    "details",
    { class: "more" },
    h("summary", {}, "JSON"),
    h("div", { class: "stack" }, formPlace, field("As JSON", json), problems),
  );
  const task = h("input", { value: start.task ?? "", spellcheck: "false", class: "mono", oninput: say });
  const context = h("input", { value: start.context ?? "", spellcheck: "false", class: "mono", oninput: say });
  const wait = h(
    "select",
    { "aria-label": "How" },
    h("option", { value: "stream", selected: card.capabilities?.streaming }, "Stream the answer"),
    h("option", { value: "send", selected: !card.capabilities?.streaming }, "Wait for the answer"),
    h("option", { value: "now" }, "Send only"),
  );
  const messageId = h("input", { placeholder: "a new one for each message", spellcheck: "false", class: "mono" });
  const metadata = h("textarea", { rows: "2", class: "mono", placeholder: "{ }", spellcheck: "false" });
  const modes = h("input", { placeholder: "text/plain, application/json", spellcheck: "false" });
  const going = h("div", { class: "going" });
  const wrong = h("p", { class: "bad-ink", role: "alert" });
  const files = attachments((words) => {
    wrong.textContent = words;
  });
  const button = h("button", { class: "primary" }, "Send");

  const element = h(
    "form",
    {
      class: "card composer",
      onsubmit: submit,
      ondragover: (event) => event.preventDefault(),
      ondrop: (event) => {
        event.preventDefault();
        files.add(event.dataTransfer.files);
      },
    },
    h("h2", {}, "Message"),
    going,
    (card.skills ?? []).length > 0 && field("Skill", skill),
    field("Text", text),
    examples,
    jsonBox,
    files.element,
    h(
      "details",
      { class: "more", open: Boolean(start.task || start.context) },
      h("summary", {}, "More"),
      h(
        "div",
        { class: "stack" },
        field("Continue task", task),
        field("In context", context),
        field("Message id", messageId, "Messages with the same id create one task."),
        field("Accepted output modes", modes),
        field("Metadata of the request", metadata),
      ),
    ),
    h(
      "div",
      { class: "send" },
      wrong,
      h(
        "div",
        { class: "row" },
        h("div", { class: "how" }, wait),
        button,
        h("span", { class: "dim small" }, "Ctrl + Enter"),
      ),
    ),
  );

  function choose() {
    const skills = card.skills ?? [];
    const found = skills.find(({ id }) => id === skill.value);
    const all = found ? examplesOf(card, found) : skills.flatMap((each) => examplesOf(card, each));
    const proposed = found ? all : all.slice(0, 6);
    const example = ({ text, label }) =>
      h("button", { type: "button", class: "example", title: text, onclick: () => use(text) }, label);
    replace(examples, proposed.map(example));
    useSchema(inputSchema(card, skill.value));
    if (!first) anew(false);
  }

  // An example is text or JSON. It starts a new task.
  function use(example) {
    if (!first) anew(false);
    const value = objectIn(example);
    if (value === null) {
      text.value = example;
      text.focus();
      return;
    }
    text.value = "";
    useSchema(schema, value);
    json.value = JSON.stringify(value, null, 2);
    jsonBox.open = true;
    check();
  }

  function useSchema(given, value = {}) {
    schema = given;
    form = schema ? schemaForm(schema, filled, value) : null;
    replace(formPlace, form?.element);
    if (form) {
      jsonBox.open = true;
      json.value = JSON.stringify(form.read(), null, 2);
    }
    problems.replaceChildren();
  }

  function filled() {
    json.value = JSON.stringify(form.read(), null, 2);
    check();
  }

  function check() {
    const { value, error } = data();
    const found = error
      ? [{ path: "JSON", text: error }]
      : value !== undefined && schema
        ? validate(value, schema)
        : [];
    replace(
      problems,
      found.map((each) => h("li", {}, h("code", {}, each.path), ` ${each.text}`)),
    );
    return found;
  }

  function data() {
    if (json.value.trim() === "") return {};
    try {
      return { value: JSON.parse(json.value) };
    } catch (error) {
      return { error: error.message };
    }
  }

  function say() {
    const words = task.value
      ? `Continues task ${shortId(task.value)}`
      : context.value
        ? "A new task in the same conversation"
        : "";
    replace(
      going,
      words && [
        h("span", {}, words),
        h("button", { type: "button", class: "quiet small", onclick: () => anew(true) }, "Start a new task"),
      ],
    );
  }

  // The next message starts a new task; with `all`, also a new context.
  function anew(all) {
    task.value = "";
    if (all) context.value = "";
    say();
  }

  // Returns the parameters of SendMessage, or shows the problem and returns null.
  function params() {
    wrong.textContent = "";
    const parts = [];
    if (text.value.trim()) parts.push({ text: text.value });
    const found = check();
    if (found.length) {
      jsonBox.open = true;
      wrong.textContent = "The JSON is invalid; see the errors below it.";
      return null;
    }
    const { value } = data();
    if (value !== undefined && !(form && Object.keys(value).length === 0 && parts.length)) parts.push({ data: value });
    parts.push(...files.parts());
    if (!parts.length) {
      wrong.textContent = "Enter a text, or add JSON or a file.";
      text.focus();
      return null;
    }
    const message = { messageId: messageId.value.trim() || crypto.randomUUID(), role: "ROLE_USER", parts };
    if (task.value.trim()) message.taskId = task.value.trim();
    if (context.value.trim()) message.contextId = context.value.trim();
    const given = { message };
    const configuration = {};
    if (wait.value === "now") configuration.returnImmediately = true;
    if (modes.value.trim())
      configuration.acceptedOutputModes = modes.value
        .split(",")
        .map((each) => each.trim())
        .filter(Boolean);
    if (Object.keys(configuration).length) given.configuration = configuration;
    try {
      const more = metadata.value.trim() ? JSON.parse(metadata.value) : {};
      if (skill.value) more.skillId = skill.value;
      if (Object.keys(more).length) given.metadata = more;
    } catch (error) {
      wrong.textContent = `The metadata is not valid JSON: ${error.message}`;
      return null;
    }
    return given;
  }

  function submit(event) {
    event.preventDefault();
    const given = params();
    if (!given) return;
    onSend(given, wait.value === "stream");
    text.value = "";
    messageId.value = "";
    files.clear();
    text.focus();
  }

  choose();
  if (objectIn(start.text)) use(start.text);
  first = false;
  say();
  return {
    element,
    params,
    inContext(contextId) {
      task.value = "";
      context.value = contextId;
      say();
    },
    get streams() {
      return wait.value === "stream";
    },
  };
}

// Returns the JSON object in a text, or null.
function objectIn(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
