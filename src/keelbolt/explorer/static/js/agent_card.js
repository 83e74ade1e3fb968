// The agent card (fetched once), the input schemas and examples of its skills, and the steering buttons it declares.

import { useCard } from "./agents.js";
import { send } from "./api.js";

let known = null;

export const cardCall = { method: "GET", path: "/.well-known/agent-card.json", query: {} };

export function agentCard() {
  known ??= send(cardCall).then(
    (card) => {
      useCard(card);
      return card;
    },
    (error) => {
      known = null;
      throw error;
    },
  );
  return known;
}

// A2A has no field for the input schema of a skill. Agents put it into the skill, into an extension of the skill, or
// into the parameters of an agent extension, by skill id.
export function inputSchema(card, skillId) {
  const skill = (card.skills ?? []).find(({ id }) => id === skillId);
  if (!skill) return null;
  const places = [skill, ...Object.values(skill.extensions ?? {}), skill.metadata];
  for (const extension of card.capabilities?.extensions ?? []) {
    const params = extension.params ?? {};
    const skills = params.skills ?? {};
    places.push(Array.isArray(skills) ? skills.find((each) => (each.id ?? each.skillId) === skillId) : skills[skillId]);
    places.push(
      asPlace(params.inputSchemas?.[skillId] ?? params.schemas?.[skillId] ?? params.input_schemas?.[skillId]),
    );
  }
  for (const place of places) {
    const found = place?.inputSchema ?? place?.input_schema;
    if (found && typeof found === "object") return found;
  }
  return null;
}

// Returns the examples of a skill: a label and the input. Agents of apcore modules have titles in their extension.
export function examplesOf(card, skill) {
  const declared = (card.capabilities?.extensions ?? []).flatMap(
    ({ params }) => params?.skills?.[skill.id]?.examples ?? [],
  );
  return (skill.examples ?? []).map((text, index) => ({
    text,
    label: typeof declared[index]?.title === "string" && declared[index].title ? declared[index].title : text,
  }));
}

// Badges of apcore's annotations, which are tags of a skill.
const BADGES = { readonly: "good", idempotent: "still", destructive: "bad", "requires-approval": "ask" };

export function badgeOf(tag) {
  const name = tag.startsWith("apcore:") ? tag.slice("apcore:".length) : "";
  return name in BADGES ? { label: name.replaceAll("-", " "), tone: BADGES[name] } : { label: tag };
}

const asPlace = (schema) => (schema?.inputSchema || schema?.input_schema ? schema : { inputSchema: schema });

// Returns the steering buttons that the card declares: [{label, text, kind, payload, schema, danger, tab}].
// The user fills in the fields of `schema`; they are added to `payload`.
const STEERING = "urn:keelbolt:a2a:steering:v1";

export function steeringButtons(card) {
  const buttons = (card.capabilities?.extensions ?? []).find(({ uri }) => uri === STEERING)?.params?.buttons;
  return (Array.isArray(buttons) ? buttons : [])
    .filter((each) => typeof each?.label === "string" && typeof each.kind === "string")
    .slice(0, 5);
}
