// What was said and made in a task.

import { h } from "../dom.js";
import { stepName } from "../events.js";
import { fold } from "../fold.js";
import { shorten } from "../format.js";
import { masked } from "../json.js";
import { parts } from "../parts.js";
import { facts } from "../pieces.js";

export function conversation(log, about) {
  const task =
    log.entries.length && log.floor === 0
      ? fold(log.entries)
      : {
          history: about.task.history ?? [],
          artifacts: new Map((about.task.artifacts ?? []).map((each) => [each.artifactId, each])),
          steps: new Map(Object.entries(about.steps ?? {})),
          status: about.task.status,
        };
  return h(
    "div",
    { class: "columns" },
    h(
      "section",
      { class: "stack talk-column", "aria-label": "Messages" },
      h("h2", {}, "Said"),
      task.history.map((message) =>
        h("div", { class: `bubble ${message.role === "ROLE_USER" ? "mine" : "theirs"}` }, parts(message.parts)),
      ),
    ),
    h(
      "section",
      { class: "stack", "aria-label": "Artifacts" },
      h("h2", {}, "Made"),
      !task.artifacts.size && h("p", { class: "dim" }, "No artifacts yet."),
      [...task.artifacts.values()].map((artifact) =>
        h(
          "div",
          { class: "card" },
          h(
            "div",
            { class: "row" },
            h("h3", {}, artifact.name ?? artifact.artifactId),
            artifact.description && h("span", { class: "dim" }, artifact.description),
          ),
          parts(artifact.parts),
        ),
      ),
      task.steps.size > 0 &&
        h(
          "div",
          { class: "card" },
          h("h3", {}, "Steps of this turn"),
          facts(
            [...task.steps].map(([name, each]) => [
              stepName(name),
              h(
                "span",
                {},
                each.state,
                each.result !== undefined &&
                  each.result !== null &&
                  h("code", { class: "dim break" }, ` ${shorten(JSON.stringify(masked(each.result)), 200)}`),
              ),
            ]),
          ),
        ),
    ),
  );
}
