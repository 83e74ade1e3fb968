// The task as of any entry of its log, and the differences between two entries. Nothing is executed again.

import { h, later, replace, soon } from "../dom.js";
import { diff, commonStart } from "../diff.js";
import { kindOf, stepName, summary, toneOf } from "../events.js";
import { fold, plain } from "../fold.js";
import { plural, precise, shorten } from "../format.js";
import { masked } from "../json.js";
import { parts } from "../parts.js";
import { badge, field, tag } from "../pieces.js";
import { here, setQuery } from "../router.js";

const PLAY_MS = 600;

export function replay({ log, signal, onFork }) {
  const first = log.entries[0].seq;
  let at = Math.min(Math.max(Number(here().query.at) || log.last, first), log.last);
  let other = Number(here().query.with) || 0;
  let playing = 0;
  const range = h("input", {
    type: "range",
    min: first,
    max: log.last,
    value: at,
    "aria-label": "Entry",
    oninput: () => move(Number(range.value)),
  });
  const compare = h("input", {
    type: "number",
    min: first,
    max: log.last,
    value: other || "",
    placeholder: "none",
    oninput: later(() => {
      other = Number(compare.value);
      setQuery({ with: other || "" });
      draw();
    }, 200),
  });
  const play = h("button", { type: "button", onclick: toggle }, "Play");
  const line = h("p", { class: "replay-line", "aria-live": "polite" });
  const view = h("div", { class: "columns" });
  const step = (by) => () => {
    stop();
    move(at + by);
  };
  const element = h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "card" },
      h(
        "div",
        { class: "row" },
        h(
          "div",
          { class: "row tight", role: "group", "aria-label": "Step" },
          h("button", { type: "button", "aria-label": "First entry", onclick: () => move(first) }, "|◀"),
          h("button", { type: "button", "aria-label": "Previous entry", onclick: step(-1) }, "◀"),
          play,
          h("button", { type: "button", "aria-label": "Next entry", onclick: step(1) }, "▶"),
          h("button", { type: "button", "aria-label": "Last entry", onclick: () => move(log.last) }, "▶|"),
        ),
        h("div", { class: "replay-range" }, range),
        h("div", { class: "replay-compare" }, field("Compare with entry", compare)),
        h("button", { type: "button", class: "small", onclick: () => onFork(at) }, "Fork from here"),
      ),
      line,
    ),
    view,
  );

  function move(to) {
    at = Math.min(Math.max(to, first), log.last);
    range.max = log.last;
    range.value = at;
    setQuery({ at });
    draw();
  }

  function toggle() {
    if (playing) return stop();
    if (at >= log.last) move(first);
    play.textContent = "Stop";
    playing = setInterval(() => (at >= log.last ? stop() : move(at + 1)), PLAY_MS);
    return undefined;
  }

  function stop() {
    clearInterval(playing);
    playing = 0;
    play.textContent = "Play";
  }
  signal.addEventListener("abort", stop);

  const draw = soon(() => {
    const entry = log.entries.find(({ seq }) => seq === at);
    const task = fold(log.entries, at);
    replace(
      line,
      h("strong", {}, `#${at} of ${log.last}`),
      " ",
      entry && tag(kindOf(entry).label, toneOf(entry)),
      " ",
      entry && h("span", { class: "dim mono" }, precise(entry.at)),
      " ",
      entry && shorten(summary(entry), 200),
    );
    replace(view, state(task), changes(log, other || at - 1, at, first));
  });
  draw();
  return {
    element,
    grow: () => {
      range.max = log.last;
    },
    stop,
  };
}

function state(task) {
  return h(
    "section",
    { class: "card" },
    h(
      "div",
      { class: "row" },
      h("h2", {}, "Task at this entry"),
      badge(task.state),
      task.turn > 0 && h("span", { class: "dim" }, `turn ${task.turn}, run ${task.runs}`),
    ),
    task.history.map((message) =>
      h("div", { class: `bubble ${message.role === "ROLE_USER" ? "mine" : "theirs"}` }, parts(message.parts)),
    ),
    task.steps.size > 0 &&
      h(
        "div",
        { class: "row tight" },
        [...task.steps].map(([name, each]) =>
          tag(
            `${stepName(name)}: ${each.state}`,
            each.state === "done" ? "good" : each.state === "started" ? "busy" : "ask",
          ),
        ),
      ),
    [...task.artifacts.values()].map((artifact) =>
      h(
        "div",
        { class: "artifact" },
        h("h3", { class: "dim small" }, artifact.name ?? artifact.artifactId),
        parts(artifact.parts),
      ),
    ),
  );
}

function changes(log, one, two, first) {
  const [from, to] = one < two ? [one, two] : [two, one];
  const found = diff(plain(fold(log.entries, from)), plain(fold(log.entries, to)));
  return h(
    "section",
    { class: "card" },
    h("h2", {}, from < first ? `Changes by #${to}` : `Changes from #${from} to #${to}`),
    found.length
      ? h("p", { class: "dim" }, plural(found.length, "difference"))
      : h("p", { class: "dim" }, "No changes."),
    h(
      "ul",
      { class: "changes" },
      found.map((each) =>
        h(
          "li",
          {},
          h("code", { class: "break" }, each.path),
          " ",
          tag(each.kind, { added: "good", removed: "bad", changed: "ask" }[each.kind]),
          values(each),
        ),
      ),
    ),
  );
}

function values({ kind, before, after, path }) {
  if (
    typeof before === "string" &&
    typeof after === "string" &&
    commonStart(before, after) >= Math.min(12, before.length)
  ) {
    const same = commonStart(before, after);
    return h(
      "div",
      { class: "change" },
      h("span", { class: "dim" }, `…${before.slice(Math.max(0, same - 30), same)}`),
      h("del", {}, shorten(before.slice(same), 500)),
      h("ins", {}, shorten(after.slice(same), 500)),
    );
  }
  const name = path.split(/[.[]/).at(-1);
  return h(
    "div",
    { class: "change" },
    kind !== "added" && h("del", {}, text(before, name)),
    kind !== "removed" && h("ins", {}, text(after, name)),
  );
}

const text = (value, name) =>
  shorten(
    typeof value === "string" ? String(masked(value, name)) : (JSON.stringify(masked(value), null, 1) ?? ""),
    600,
  );
