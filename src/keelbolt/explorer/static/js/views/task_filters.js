// The filter controls of the task list.

import { h, later } from "../dom.js";
import { ops, send } from "../api.js";
import { fullMoment } from "../format.js";
import { field } from "../pieces.js";
import { link } from "../router.js";
import { parsePartition } from "../partition.js";

const SPANS = { "": "Any time", 900: "Last 15 minutes", 3600: "Last hour", 86400: "Last day", 604800: "Last week" };

export async function filterControls({ query, card, me, change }) {
  const text = h("input", {
    type: "search",
    value: query.text ?? "",
    placeholder: "Text or id   ( / )",
    oninput: later(() => change({ text: text.value.trim() }), 300),
  });
  const context = h("input", {
    value: query.context ?? "",
    class: "mono",
    spellcheck: "false",
    oninput: later(() => change({ context: context.value.trim() }), 300),
  });
  const skills = [...new Set([...(card.skills ?? []).map(({ id }) => id), ...(query.skill ? [query.skill] : [])])];
  const skill = h(
    "select",
    { onchange: () => change({ skill: skill.value }) },
    h("option", { value: "" }, "Any skill"),
    skills.map((id) => h("option", { value: id, selected: id === query.skill }, id)),
  );
  const span = h(
    "select",
    { onchange: () => span.value !== "kept" && change({ within: span.value, since: "", until: "" }) },
    query.since && h("option", { value: "kept", selected: true }, `Since ${fullMoment(query.since)}`),
    Object.entries(SPANS).map(([value, label]) =>
      h("option", { value, selected: !query.since && value === (query.within ?? "") }, label),
    ),
  );
  let owner = null;
  if (me?.operator) {
    const { partitions } = await send(ops("GET", "/partitions")).catch(() => ({ partitions: [] }));
    const current = JSON.stringify([query.tenant ?? null, query.owner ?? null, query.askedTenant ?? null]);
    const all = JSON.stringify("all");
    const value = ({ tenant, owner: name, askedTenant }) =>
      JSON.stringify([tenant ?? null, name ?? null, askedTenant ?? null]);
    const options = partitions.map((name) => ({ ...parsePartition(name), name })).filter((each) => each.query);
    if (options.length)
      owner = h(
        "select",
        {
          onchange: () => {
            const [tenant, name, askedTenant] = JSON.parse(owner.value);
            const ownerQuery = owner.value === all ? { all: "true" } : { tenant, owner: name, askedTenant };
            location.hash = link(["tasks"], ownerQuery);
          },
        },
        h("option", { value: JSON.stringify([null, null, null]) }, "Mine"),
        h("option", { value: all, selected: query.all === "true" }, "Everyone"),
        options.map(({ query: each, label }) =>
          h("option", { value: value(each), selected: value(each) === current }, label),
        ),
      );
  }
  return h(
    "form",
    { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    field("Search", text),
    field("Skill", skill),
    field("Context", context),
    field("Changed", span),
    owner && field("Owner", owner),
  );
}
