// Shows the parts of messages and artifacts: text, JSON, images, files and URLs.

import { h, replace } from "./dom.js";
import { BASE, OPS, headers } from "./api.js";
import { bytes } from "./format.js";
import { tree } from "./json.js";
import { markdown } from "./markdown.js";
import { download } from "./pieces.js";

const TEXT_CHARACTERS = 20_000;
const MARKDOWN_CHARACTERS = 200_000; // longer texts are shown as plain text
const IMAGES = /^image\/(png|jpe?g|gif|webp|avif|bmp)$/; // no SVG: it may contain scripts

const KEPT = `${BASE}${OPS}/tasks/`;
const KEPT_FILE = /^[\w-]+\/files\/[0-9a-f]{64}$/; // no dots: the request carries our token

const TEXTS = /^(text\/|application\/(json|xml|yaml)\b)/;
const PREVIEW_BYTES = 4000;

export function parts(list) {
  return joined(list ?? []).map(part);
}

// Joins the chunks of a stream to one text.
function joined(list) {
  const found = [];
  for (const each of list) {
    const before = found.at(-1);
    if (typeof each?.text === "string" && before?.pieces && each.mediaType === before.mediaType)
      before.pieces.push(each.text);
    else if (typeof each?.text === "string") found.push({ pieces: [each.text], mediaType: each.mediaType });
    else found.push(each);
  }
  return found.map((each) => (each?.pieces ? { text: each.pieces.join(""), mediaType: each.mediaType } : each));
}

function part(each) {
  if (typeof each?.text === "string") return textPart(each.text, each.mediaType);
  if (each && "data" in each) return h("div", { class: "part" }, tree(each.data, { open: 2 }));
  if (typeof each?.raw === "string") return file(each);
  if (typeof each?.url === "string") return address(each);
  return h("div", { class: "part" }, tree(each));
}

// Shows text as Markdown and JSON as a tree; `text/plain` is unchanged. A button shows the source if it differs.
export function textPart(value, mediaType = "") {
  const box = h("div", { class: "part" });
  let source = /^text\/plain\b/.test(mediaType);
  let length = TEXT_CHARACTERS;
  const draw = () => {
    const shown = value.slice(0, length);
    const json = source || length < value.length ? undefined : jsonIn(value);
    const body =
      source || shown.length > MARKDOWN_CHARACTERS ? h("div", { class: "text" }, shown) : (json ?? markdown(shown));
    const differs = source || json || body.querySelector?.(MARKED);
    replace(
      box,
      body,
      h(
        "div",
        { class: "row tight part-tools" },
        length < value.length && quiet(`… show all ${bytes(value.length)}`, () => (length = value.length)),
        differs &&
          !/^text\/plain\b/.test(mediaType) &&
          quiet(source ? "Formatted" : "Source", () => (source = !source)),
      ),
    );
  };
  const quiet = (label, change) =>
    h(
      "button",
      {
        type: "button",
        class: "quiet small",
        onclick: () => {
          change();
          draw();
        },
      },
      label,
    );
  draw();
  return box;
}

const MARKED = "ul, ol, pre, table, blockquote, hr, code, strong, em, del, img, .md-heading, a";

// Returns a tree if the text is a JSON object or list.
function jsonIn(text) {
  if (!/^\s*[{[]/.test(text)) return undefined;
  try {
    return tree(JSON.parse(text), { open: 2 });
  } catch {
    return undefined;
  }
}

function file({ raw, mediaType = "application/octet-stream", filename = "file" }) {
  let data;
  try {
    data = Uint8Array.from(atob(raw.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
  } catch {
    return h("div", { class: "part" }, "An unreadable file");
  }
  const blob = new Blob([data], { type: IMAGES.test(mediaType) ? mediaType : "application/octet-stream" });
  const about = h(
    "div",
    { class: "row tight" },
    h("strong", {}, filename),
    h("span", { class: "dim" }, `${mediaType}, ${bytes(data.length)}`),
    h("button", { type: "button", class: "quiet small", onclick: () => download(filename, blob) }, "Download"),
  );
  if (!IMAGES.test(mediaType)) return h("div", { class: "part file" }, about);
  const url = URL.createObjectURL(blob);
  const image = h("img", { src: url, alt: filename, onload: () => URL.revokeObjectURL(url) });
  return h("figure", { class: "part file" }, image, about);
}

// External files are not fetched: that would reveal the reader to the agent. Stored files are fetched on a click.
function address({ url, mediaType, filename }) {
  if (url.startsWith(KEPT) && KEPT_FILE.test(url.slice(KEPT.length))) return keptFile({ url, mediaType, filename });
  const safe = /^https?:\/\//i.test(url);
  return h(
    "div",
    { class: "part file" },
    h("strong", {}, filename ?? "External file"),
    " ",
    safe ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url) : h("code", {}, url),
    mediaType && h("span", { class: "dim" }, ` ${mediaType}`),
  );
}

// A file that this agent stores. It is fetched with the page's credentials on a click; an `eager` image at once.
export function keptFile({ url, mediaType = "application/octet-stream", filename = "file", size, eager = false }) {
  const image = IMAGES.test(mediaType);
  const fetched = async (more = {}) => {
    const answer = await fetch(url, { headers: { ...headers({}), ...more }, credentials: "same-origin" });
    if (!answer.ok) throw new Error(`The agent returned status ${answer.status}.`);
    return new Blob([await answer.arrayBuffer()], { type: image ? mediaType : "application/octet-stream" });
  };
  const wrong = h("span", { class: "bad-ink" });
  const guarded = (work) => async () => {
    try {
      await work();
    } catch (error) {
      wrong.textContent = error.message;
    }
  };
  const show = guarded(async () => {
    if (image) {
      const shown = URL.createObjectURL(await fetched());
      box.append(h("img", { src: shown, alt: filename, onload: () => URL.revokeObjectURL(shown) }));
    } else {
      const start = await (await fetched({ Range: `bytes=0-${PREVIEW_BYTES - 1}` })).text();
      box.append(h("pre", { class: "preview", tabindex: "0", "aria-label": `Start of ${filename}` }, start));
      if (size > PREVIEW_BYTES) box.append(h("p", { class: "dim small" }, `The first ${bytes(PREVIEW_BYTES)}.`));
    }
    showing.remove();
  });
  const showing = h("button", { type: "button", class: "quiet small", onclick: show }, "Show");
  const box = h(
    "div",
    { class: "part file" },
    h(
      "div",
      { class: "row tight" },
      h("strong", {}, filename),
      h("span", { class: "dim" }, [mediaType, Number.isFinite(size) && bytes(size)].filter(Boolean).join(", ")),
      (image || (Number.isFinite(size) && TEXTS.test(mediaType))) && showing,
      h(
        "button",
        { type: "button", class: "quiet small", onclick: guarded(async () => download(filename, await fetched())) },
        "Download",
      ),
      wrong,
    ),
  );
  if (image && eager) show();
  return box;
}

export const plainText = (message) =>
  (message?.parts ?? [])
    .map((each) => each?.text)
    .filter((each) => typeof each === "string")
    .join("\n");
