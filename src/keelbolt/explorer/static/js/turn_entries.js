// Shows the records of turns: messages, thoughts, tool calls, retrievals and memories.

import { h, replace } from "./dom.js";
import { address, send } from "./api.js";
import { shorten } from "./format.js";
import { masked, tree } from "./json.js";
import { keptFile, textPart } from "./parts.js";
import { copyAs, copyButton, tag, time } from "./pieces.js";
import { link } from "./router.js";
import { named, tenant, turns } from "./turn_calls.js";

const LISTS = { message: "messages", thought: "thoughts", tool_call: "tool-calls", retrievable: "retrievables" };
const EAGER_BYTES = 256 * 1024; // images up to this size load at once
const PAGE = 100;

const words = (value) => (typeof value === "string" ? value : (value?.text ?? ""));
const called = (identity) => (typeof identity === "string" ? identity : words(identity?.representation));

// For each kind: its class, the text before the time, and its content.
const KINDS = {
  message: {
    look: ({ role }) => `bubble ${role === "user" ? "mine" : "theirs"}`,
    head: (data) => [h("strong", {}, called(data.identity) || data.role)],
    body: (data) => [words(data.content) && textPart(words(data.content))],
  },
  thought: {
    look: () => "aside",
    head: (data) => [tag("thought", "violet"), called(data.identity) !== "assistant" && called(data.identity)],
    body: (data) => [
      words(data.content) && h("div", { class: "dim" }, textPart(words(data.content))),
      data.payload !== undefined && folded("Provider-specific data", () => tree(data.payload, { open: 2 })),
    ],
  },
  tool_call: {
    look: () => "aside",
    head: (data) => [tag("tool", "busy"), h("strong", { class: "mono break" }, data.tool), outcome(data)],
    body: (data) => [
      Object.keys(data.args ?? {}).length > 0 && tree(data.args, { open: 1 }),
      words(data.results) &&
        h("div", { class: data.is_error ? "artifact bad-ink" : "artifact" }, textPart(words(data.results))),
    ],
  },
  retrievable: {
    look: () => "aside",
    head: (data) => [
      tag("looked up", "still"),
      data.source && h("strong", { class: "break" }, data.source),
      h("span", { class: "dim" }, [data.kind, data.trust_tier].filter(Boolean).join(", ")),
      typeof data.score === "number" && h("span", { class: "dim" }, `score ${data.score.toFixed(2)}`),
    ],
    body: (data) => [words(data.content) && h("div", { class: "artifact" }, textPart(words(data.content)))],
  },
};

function outcome(data) {
  if (data.is_error) return tag("failed", "bad");
  return data.is_complete ? tag("done", "good") : tag("running", "ask");
}

// The content is created when the user opens it.
function folded(title, make) {
  const inside = h("div", { class: "stack" });
  const once = () => inside.childElementCount || replace(inside, make());
  return h("details", { class: "more", ontoggle: once }, h("summary", {}, title), inside);
}

export function entry(thread, each, { began, wanted }) {
  const box = h("article", {
    class: "entry",
    role: "listitem",
    id: `entry-${each.seq}`,
    "aria-current": String(each.seq) === wanted ? "true" : null,
  });
  fill(box, thread, each, began);
  return box;
}

function fill(box, thread, each, began) {
  const { look, head, body } = KINDS[each.kind];
  const call = turns(`/threads/${named(thread.ref)}/${LISTS[each.kind]}/${named(each.ref)}`);
  const whole = h("button", { type: "button", class: "small", onclick: all }, "Show all");
  async function all() {
    try {
      fill(box, thread, await send(call), began);
    } catch (error) {
      whole.replaceWith(h("span", { class: "bad-ink" }, error.message));
    }
  }
  replace(
    box,
    began &&
      h("p", { class: "turn-line" }, h("span", {}, "Turn "), h("span", { class: "mono" }, shorten(each.turn, 60))),
    h(
      "div",
      { class: look(each.data) },
      h("div", { class: "row tight" }, head(each.data), when(thread, each)),
      each.problem && h("p", { class: "bad-ink break" }, each.problem),
      body(each.data),
      each.files.map((file) => attached(call, file)),
      each.cut && h("div", { class: "row tight" }, whole),
      folded("All stored fields", () => [
        h(
          "div",
          { class: "row tight" },
          copyButton(() => JSON.stringify(masked(each), null, 2), "Copy"),
          copyAs(call),
        ),
        tree(each, { open: 2 }),
      ]),
    ),
  );
}

const when = (thread, { seq, data, created }) =>
  h(
    "a",
    {
      class: "dim entry-time",
      href: link(["turns", thread.ref], { tenant: tenant(), entry: seq }),
      title: "Link to this entry",
    },
    data.created_at || created ? time(data.created_at ?? created) : `#${seq}`,
  );

const attached = (call, { digest, size, mediaType, filename }) =>
  keptFile({
    url: address({ ...call, path: `${call.path}/files/${digest}` }),
    mediaType,
    filename,
    size,
    eager: size <= EAGER_BYTES,
  });

// ------------------------------------------------------------------------------------- memories and instructions

export function remembered(thread, shared, signal) {
  const own = { ...thread, title: "Of this thread", path: `/threads/${named(thread.ref)}` };
  const others = shared.map((each) => ({
    ...each,
    title:
      each.kind === "tenant" ? "Of the tenant" : each.id ? `Of the agent ${shorten(each.id, 60)}` : "Of all threads",
    path: `/shared/${named(each.ref)}`,
  }));
  const all = [own, ...others];
  return [
    part("Standing instructions", all, "instructions", "standing-instructions", instruction, signal),
    part("Memories", all, "memories", "memories", memory, signal),
  ];
}

function part(title, sharers, member, path, item, signal) {
  const those = sharers.filter((each) => each[member].length);
  return h(
    "div",
    { class: "card" },
    h("h2", {}, title),
    !those.length && h("p", { class: "dim" }, "None stored."),
    those.map((each) => group(each, member, path, item, signal)),
  );
}

function group(sharer, member, path, item, signal) {
  const rows = h("ul", { class: "plain lined" }, sharer[member].map(item));
  const more = h("button", { type: "button", class: "small", onclick: load }, "More");
  let token;
  async function load() {
    const call = turns(`${sharer.path}/${path}`, { pageSize: PAGE, pageToken: token });
    const page = await send(call, { signal });
    if (token === undefined) rows.replaceChildren(); // the first page contains the rows shown so far
    token = page.nextPageToken;
    rows.append(...page.records.map(item));
    more.hidden = !token;
  }
  more.hidden = !sharer.more.includes(member);
  return h("div", {}, h("h3", { class: "dim" }, sharer.title), rows, more);
}

const instruction = ({ data, updated }) => {
  const key = data.text?.key;
  return h(
    "li",
    {},
    textPart(words(data.text)),
    h(
      "div",
      { class: "row tight small dim" },
      key && h("span", { class: "mono break" }, key),
      updated && time(updated),
    ),
  );
};

const share = (name, value) => typeof value === "number" && `${name} ${value.toFixed(2)}`;

const memory = ({ data, updated }) =>
  h(
    "li",
    {},
    textPart(words(data.content)),
    h(
      "div",
      { class: "row tight small dim" },
      [share("importance", data.importance), share("confidence", data.confidence)].filter(Boolean).join(", "),
      updated && time(updated),
    ),
  );
