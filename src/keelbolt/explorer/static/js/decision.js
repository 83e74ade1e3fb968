// A question to the user: an approval, a gate or another request for input, with fields from the schema of the answer.

import { h, replace } from "./dom.js";
import { inDoubt, isApproval, proposals, schemaOf } from "./answers.js";
import { predicted } from "./changes.js";
import { tree } from "./json.js";
import { parts } from "./parts.js";
import { copyAs, field, problem } from "./pieces.js";
import { answerForm } from "./schema.js";

// `choices` become buttons, `schema` becomes fields, `words` is the label of a text field, `refusals` are more buttons.
// `onAnswer(given)` gets {choice} or {value, text}; the page shows its errors.
export function decision({
  title,
  tone = "ask",
  content,
  choices = [],
  schema,
  words,
  onAnswer,
  refusals,
  call,
  closed,
}) {
  const wrong = h("div", {});
  const form = schema ? answerForm(schema) : null;
  const text = words ? h("textarea", { rows: "2" }) : null;
  const given = () => ({ value: form?.read(), text: text?.value.trim() ?? "" });
  const buttons = [];
  async function answer(what) {
    replace(wrong);
    const filled = what.choice ? [] : (form?.problems() ?? []);
    try {
      if (filled.length) throw new Error(`${filled.join("; ")}.`);
      if (!what.choice && !form && !what.text) throw new Error("Enter an answer first.");
      buttons.forEach((each) => (each.disabled = true));
      await onAnswer(what);
    } catch (error) {
      replace(wrong, problem(error));
      buttons.forEach((each) => (each.disabled = false));
    }
  }
  const made = (label, tone, onclick) => {
    const button = h("button", { type: onclick ? "button" : "submit", class: tone, onclick }, label);
    buttons.push(button);
    return button;
  };
  const controls = closed
    ? h("p", { class: "dim" }, closed)
    : h(
        "form",
        {
          class: "stack",
          novalidate: true,
          onsubmit: (event) => {
            event.preventDefault();
            answer(given());
          },
        },
        choices.length > 0 &&
          h(
            "div",
            { class: "row" },
            choices.map((choice) => made(choice.label, choice.tone, () => answer({ choice }))),
          ),
        form?.element,
        text && field(words, text),
        wrong,
        (form || text || refusals) &&
          h(
            "div",
            { class: "row" },
            (form || text) && made("Answer", choices.length ? "" : "primary"),
            refusals?.map(({ label, danger, onclick }) => made(label, danger ? "danger" : "", onclick)),
            call && copyAs(() => call(given())),
          ),
      );
  return h(
    "section",
    { class: `notice ${tone} question`, "aria-label": "The question" },
    h("div", { class: "stack grow-box" }, h("h2", {}, title), content, controls),
  );
}

// The question in the status message of a task.
export function questionOf(message, state, { onAnswer, call, closed }) {
  const doubt = inDoubt(message);
  const approval = isApproval(message, dataOf(message));
  const choices = proposals(message);
  const schema = schemaOf(message);
  return decision({
    title: doubt
      ? "A step is in doubt"
      : state === "auth_required"
        ? "Sign-in required"
        : approval
          ? "Approval required"
          : "Waiting for an answer",
    tone: doubt ? "bad" : "ask",
    content: message ? asked(message) : h("p", {}, "The agent gave no details."),
    choices,
    schema,
    words: schema ? null : choices.length ? "Or a custom answer" : "Answer",
    onAnswer: (given) => onAnswer(partsOf(given)),
    call: call && ((given) => call(partsOf(given))),
    closed,
  });
}

const partsOf = ({ choice, value, text }) =>
  choice ? choice.parts : [...(text ? [{ text }] : []), ...(value === undefined ? [] : [{ data: value }])];

const dataOf = (message) =>
  (message?.parts ?? []).map((part) => part?.data).find((each) => each && typeof each === "object");

// Data that buttons and fields already show is folded under Details.
const SHOWN = ["answers", "choices", "options", "schema", "inputSchema", "requestedSchema", "approval", "inDoubt", "gate"];

// Returns the message of a question without the parts that buttons and fields show.
export function asked(message) {
  const shown = (part) => part?.data && typeof part.data === "object" && SHOWN.some((name) => name in part.data);
  const details = message.parts.filter((part) => shown(part) && !part.data.answers);
  return [
    parts(message.parts.filter((part) => !shown(part))),
    predicted(message),
    details.length > 0 &&
      h(
        "details",
        { class: "more" },
        h("summary", {}, "Details"),
        details.map((part) => tree(part.data, { open: 2 })),
      ),
  ];
}
