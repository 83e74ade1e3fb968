// One record: its content, its logs, other records of the same subject, and a button to erase the subject.

import { h, replace } from "../dom.js";
import { ops, send } from "../api.js";
import { ask } from "../dialog.js";
import { bytes, number, plural } from "../format.js";
import { raw, tree } from "../json.js";
import { copyAs, empty, facts, problem, tabs, tag, time } from "../pieces.js";
import { go, link, setQuery } from "../router.js";
import { drain } from "../stream.js";
import { faceName, plainId, records, tenantOf } from "./data.js";

export const dataRecordView = { id: "data", title: "Record", open };

const path = (ref) => `/data/records/${encodeURIComponent(ref)}`;

async function open({ main, parts: [, ref], query, signal }) {
  const call = ops("GET", path(ref));
  const record = await send(call, { signal });
  const subject = record.subject && { ...record.subject, tenant: tenant(record.partition) };
  // A record with a subject can have more: the checkpoints of a thread, the items of a session.
  const described = subject
    ? await send(ops("GET", "/data/subject", { query: subject }), { signal }).catch(() => null)
    : null;
  if (signal.aborted) return;
  const members = (described?.found ?? []).find(({ face }) => face === record.face)?.members ?? [];
  const pages = tabs(
    "The record",
    [
      { id: "content", title: "Content" },
      ...members
        .filter(({ family }) => family !== record.family)
        .map(({ family, title, count, exact }) => ({
          id: family,
          title: title[0].toUpperCase() + title.slice(1),
          count: `${number(count)}${exact ? "" : "+"}`,
        })),
      ...record.logs.map(({ log, head, floor }) => ({
        id: `log ${log}`,
        title: "Events",
        count: number(head - floor),
      })),
      { id: "raw", title: "Raw" },
    ],
    query.tab ?? firstTab(record, members),
    (tab, panel) => {
      setQuery({ tab: tab === firstTab(record, members) ? "" : tab });
      if (tab === "raw") panel.append(h("div", { class: "stack" }, copyAs(call), raw(record, { name: "record.json" })));
      else if (tab === "content") panel.append(content(record));
      else if (tab.startsWith("log ")) entries(ref, tab.slice(4), panel, signal);
      else records(tab, subject, panel, signal);
    },
  );
  replace(
    main,
    h(
      "div",
      { class: "stack task-head" },
      h(
        "nav",
        { class: "crumbs", "aria-label": "Where" },
        h(
          "a",
          { href: link(["data"], { face: record.face, family: record.family }) },
          `${faceName(record.face)} ${record.title}`,
        ),
      ),
      h("div", { class: "row" }, h("h1", { class: "break" }, plainId(record.id)), tag(record.title)),
      facts([
        ["Tenant or owner", tenantOf(record.partition)],
        ["Changed", record.updated && time(record.updated)],
        ["Size", bytes(record.size)],
        ["Version", record.version],
      ]),
      subject && h("div", { class: "row tight" }, eraseButton(subject, record)),
    ),
    pages.element,
  );
  pages.start();
}

// Returns the first tab: the checkpoints of a thread, the items or events of a session, or the content.
const firstTab = (record, members) =>
  ["langgraph_checkpoints", "openai_items"].find((name) => members.some(({ family }) => family === name)) ??
  (record.logs.length ? `log ${record.logs[0].log}` : "content");

const tenant = (partition) => decodeURIComponent(partition.replace(/^~\w+\//, "").split("/")[0]);

function content({ value, beside, work }) {
  const state =
    value && typeof value === "object" && value.state && typeof value.state === "object" ? value.state : null;
  const { state: _, ...rest } = state ? value : {};
  return h(
    "div",
    { class: state ? "columns" : "stack" },
    state && h("section", { class: "card" }, h("h2", {}, "State at this checkpoint"), tree(state, { open: 2 })),
    h(
      "section",
      { class: "card" },
      h("h2", {}, state ? "Checkpoint" : "Content"),
      tree(state ? rest : value, { open: 2 }),
    ),
    Object.keys(beside ?? {}).length > 0 &&
      h("section", { class: "card" }, h("h2", {}, "Related data"), tree(beside, { open: 2 })),
    work?.length > 0 && h("section", { class: "card" }, h("h2", {}, "Work"), tree(work, { open: 2 })),
  );
}

async function entries(ref, log, panel, signal) {
  const list = h("ol", { class: "plain stack" });
  const more = h("button", { type: "button", onclick: () => load() }, "More");
  let after = 0;
  async function load() {
    const call = ops("GET", `${path(ref)}/logs/${encodeURIComponent(log)}`, { query: { after, limit: 100 } });
    try {
      const page = await send(call, { signal });
      if (signal.aborted) return;
      after = page.next;
      more.hidden = !page.more;
      list.append(
        ...page.entries.map((entry) =>
          h(
            "li",
            { class: "card" },
            h("div", { class: "row" }, h("strong", {}, `#${entry.seq}`), tag(entry.kind), entry.at && time(entry.at)),
            tree(entry.value, { open: 2 }),
          ),
        ),
      );
      replace(panel, list.childElementCount ? list : empty("The log is empty"), h("div", { class: "row after" }, more));
    } catch (error) {
      if (!signal.aborted) replace(panel, problem(error, load));
    }
  }
  await load();
}

function eraseButton(subject, record) {
  return h(
    "button",
    {
      type: "button",
      class: "danger",
      onclick: () =>
        ask({
          title: `Erase this ${subject.kind}`,
          text: "All its data, in all parts of Keelbolt that have a subject of this name in this tenant, is erased permanently.",
          submit: "Erase permanently",
          danger: true,
          call: () => ({ ...ops("POST", "/erase", { body: subject }), stream: true }),
          perform: drain,
          done: ({ total }) => {
            go(["data"], { face: record.face, family: record.family });
            return plural(total, "record");
          },
        }),
    },
    "Erase",
  );
}
