// Files of a message: selected or dropped by the user, and removable.

import { h, replace } from "./dom.js";
import { bytes } from "./format.js";

const FILE_BYTES = 5_000_000; // larger files must be sent by URL

export function attachments(complain) {
  const files = [];
  const list = h("ul", { class: "plain files" });
  const chooser = h("input", { type: "file", multiple: true, class: "sr-only", onchange: taken });
  const button = h("label", { class: "button small", tabindex: "0", onkeydown: pressed }, "Add files", chooser);

  function taken() {
    add(chooser.files);
    chooser.value = "";
  }

  function pressed(event) {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    chooser.click();
  }

  async function add(given) {
    for (const file of given) {
      if (file.size > FILE_BYTES) {
        complain(`${file.name} is ${bytes(file.size)} large; send files above ${bytes(FILE_BYTES)} by URL.`);
        continue;
      }
      const url = await read(file);
      files.push({
        raw: url.slice(url.indexOf(",") + 1),
        mediaType: file.type || "application/octet-stream",
        filename: file.name,
        size: file.size,
      });
    }
    draw();
  }

  function draw() {
    replace(list, files.map(row));
  }

  function row(file, index) {
    const remove = () => {
      files.splice(index, 1);
      draw();
    };
    const options = { type: "button", class: "quiet small", "aria-label": `Remove ${file.filename}`, onclick: remove };
    return h(
      "li",
      {},
      file.filename,
      h("span", { class: "dim" }, ` ${bytes(file.size)} `),
      h("button", options, "Remove"),
    );
  }

  return {
    element: h("div", { class: "field" }, button, list),
    add,
    parts: () => files.map(({ raw, mediaType, filename }) => ({ raw, mediaType, filename })),
    clear() {
      files.length = 0;
      draw();
    },
  };
}

function read(file) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(file);
  });
}
