// Data of the framework adapters and of all other parts of Keelbolt: families of records, from their declarations.

import { h, replace } from "../dom.js";
import { ops, send } from "../api.js";
import { bytes, shorten } from "../format.js";
import { pagedTable, since } from "../paged_table.js";
import { copyAs, tabs } from "../pieces.js";
import { link, setQuery } from "../router.js";

export const dataView = { id: "data", title: "Data", operator: true, open };

// Names of the faces; frameworks come first.
export const FACES = {
  langgraph: "LangGraph",
  openai_agents: "OpenAI Agents",
  google_adk: "Google ADK",
  a2a_sdk: "a2a-sdk",
};
export const faceName = (face) => FACES[face] ?? `${face[0].toUpperCase()}${face.slice(1).replaceAll("_", " ")}`;

const order = (face) => (face in FACES ? Object.keys(FACES).indexOf(face) : 99);

async function open({ main, query, signal }) {
  const { families } = await send(ops("GET", "/data/families"), { signal });
  if (signal.aborted) return;
  const listed = families.filter(({ whole }) => whole);
  const faces = [...new Set(listed.map(({ face }) => face))].sort((one, other) => order(one) - order(other));
  const pages = tabs(
    "Parts of Keelbolt",
    faces.map((face) => ({ id: face, title: faceName(face) })),
    query.face ?? faces[0],
    (face, panel) => {
      setQuery({ face });
      showFace(
        listed.filter((each) => each.face === face),
        panel,
        signal,
        query.family,
      );
    },
  );
  replace(main, h("div", { class: "view-head" }, h("h1", {}, "Data")), pages.element);
  pages.start();
}

function showFace(families, panel, signal, wanted) {
  const place = h("div", {});
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Kind of record" });
  const choose = (family) => {
    setQuery({ family: family.family });
    replace(
      chips,
      families.map((each) =>
        h(
          "button",
          { type: "button", class: "chip", "aria-pressed": String(each === family), onclick: () => choose(each) },
          capital(each.title),
        ),
      ),
    );
    records(family.family, {}, place, signal, `No ${family.title}`);
  };
  replace(panel, chips, place);
  choose(families.find(({ family }) => family === wanted) ?? families[0]);
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// A list of records: of a family, or of a subject in that family.
export function records(family, of, panel, signal, nothing) {
  const call = (pageToken) =>
    ops("GET", `/data/families/${encodeURIComponent(family)}/records`, { query: { ...of, pageToken } });
  const table = h("div", {});
  replace(panel, h("div", { class: "stack" }, h("div", { class: "row flush" }, copyAs(call(""))), table));
  return pagedTable(
    {
      call,
      items: "records",
      heads: ["Name", "Tenant or owner", "Changed", "Size", "Subject"],
      nothing: [nothing ?? "No records of this kind"],
      row: (each) => [
        h("a", { href: link(["data", each.ref]), title: each.id }, shorten(nameIn(each.id, of.id), 80)),
        h("span", { class: "dim break" }, tenantOf(each.partition)),
        since(each.updated),
        h("span", { class: "dim nowrap" }, bytes(each.size)),
        h("span", { class: "dim break" }, shorten(fieldsOf(each), 120)),
      ],
    },
    table,
    signal,
  );
}

// Keys consist of escaped names with slashes between them.
export const plainId = (id) =>
  id
    .split("/")
    .map((part) => {
      try {
        return part === "%" ? "" : decodeURIComponent(part);
      } catch {
        return part;
      }
    })
    .filter(Boolean)
    .join(" / ");

// Omits the name of the subject whose records are listed.
function nameIn(id, subject) {
  const name = plainId(id);
  return subject && name.startsWith(`${subject} / `) ? name.slice(subject.length + 3) : name;
}

export const tenantOf = (partition) => plainId(partition.replace(/^~\w+\//, ""));

const UUID = /^[0-9a-f-]{32,64}$/;

const fieldsOf = ({ fields, id }) =>
  Object.entries(fields ?? {})
    .map(([name, value]) => [name, plainId(String(value ?? ""))])
    .filter(([, value]) => value && !UUID.test(value) && !plainId(id).includes(value))
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");
