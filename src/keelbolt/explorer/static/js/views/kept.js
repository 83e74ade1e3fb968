// Details of a memory state, a pause, or an artifact with the start of its content.

import { h, replace } from "../dom.js";
import { address, ops, send } from "../api.js";
import { bytes, shorten } from "../format.js";
import { raw, tree } from "../json.js";
import { keptFile } from "../parts.js";
import { card, copyAs, facts, time } from "../pieces.js";
import { go } from "../router.js";
import { named, state, tenant } from "../state_calls.js";
import { crumbs } from "./session.js";

export const memoryView = { id: "sessions", title: "Memory", open: openMemory };
export const pauseView = { id: "sessions", title: "Pause", open: openPause };
export const artifactView = { id: "sessions", title: "Artifact", open: openArtifact };

async function openMemory({ main, parts: [, ref], signal }) {
  const call = state(`/memory/${named(ref)}`);
  const found = await send(call, { signal });
  replace(
    main,
    h(
      "div",
      { class: "stack task-head" },
      crumbs("memory", found.key),
      h("h1", {}, shorten(found.key, 100)),
      facts([
        ["Saved", found.saved && time(found.saved)],
        ["Size", bytes(found.size)],
      ]),
      h("div", { class: "flush" }, copyAs(call)),
    ),
    card("Memory content", tree(found.state, { open: 3 })),
  );
}

async function openPause({ main, parts: [, ref], signal }) {
  const call = state(`/pauses/${named(ref)}`);
  const found = await send(call, { signal });
  const cancel = h("button", { class: "danger", onclick: () => end() }, "Cancel this pause");
  async function end() {
    if (!window.confirm("Remove this pause? It can't be resumed afterwards.")) return;
    cancel.disabled = true;
    await send(ops("DELETE", `/state/pauses/${named(ref)}`, { query: { tenant: tenant() } }));
    go(["sessions"], { tab: "pauses", tenant: tenant() });
  }
  replace(
    main,
    h(
      "div",
      { class: "stack task-head" },
      crumbs("pauses", found.token),
      h("h1", {}, shorten(found.token, 100)),
      facts([
        ["Reason", found.reason],
        ["Saved", found.saved && time(found.saved)],
        ["Expires", found.expires && time(found.expires)],
        ["Lease", found.leased ? "being resumed" : "waiting"],
      ]),
      h("div", { class: "flush" }, cancel, copyAs(call)),
    ),
    card("Payload", tree(found.payload, { open: 3 })),
  );
}

async function openArtifact({ main, parts: [, ref], signal }) {
  const call = state(`/artifacts/${named(ref)}`);
  const found = await send(call, { signal });
  const content = state(`/artifacts/${named(ref)}/content`);
  replace(
    main,
    h(
      "div",
      { class: "stack task-head" },
      crumbs("artifacts", found.id),
      h("h1", {}, shorten(found.filename ?? found.id, 100)),
      facts([
        ["Type", found.mediaType],
        ["Size", bytes(found.size)],
        ["Created", found.created && time(found.created)],
        ["Expires", found.expires ? time(found.expires) : "never"],
        ["Session", found.scope?.session_id],
        ["SHA-256", h("code", { class: "break" }, found.sha256)],
      ]),
      h("div", { class: "flush" }, copyAs(call)),
    ),
    card(
      "Content",
      keptFile({
        url: address(content),
        mediaType: found.mediaType ?? undefined,
        filename: found.filename ?? found.id,
      }),
      found.preview &&
        raw(found.preview.whole ? found.preview.text : `${found.preview.text}…`, {
          name: found.filename ?? "preview.txt",
        }),
    ),
    h("details", { class: "more" }, h("summary", {}, "All stored fields"), tree(found, { open: 2 })),
  );
}
