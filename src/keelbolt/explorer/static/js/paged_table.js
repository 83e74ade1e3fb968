// A table that loads page by page.

import { h, replace } from "./dom.js";
import { send } from "./api.js";
import { ago, fullMoment } from "./format.js";
import { empty, problem } from "./pieces.js";

export const since = (text) => text && h("time", { datetime: text, title: fullMoment(text), class: "dim" }, ago(text));

// `call(token)` returns the call for a page; `items` is the member of the response that holds the rows.
export async function pagedTable({ call, items, heads, row, nothing }, panel, signal) {
  const rows = h("tbody");
  const more = h("button", { type: "button", onclick: next }, "More");
  const table = h(
    "table",
    {},
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        heads.map((head) => h("th", { scope: "col" }, head)),
      ),
    ),
    rows,
  );
  let token = "";
  async function next() {
    more.disabled = true;
    try {
      await load();
    } catch (error) {
      if (!signal.aborted) replace(panel, rows.childElementCount > 0 && table, problem(error, next));
    }
    more.disabled = false;
  }
  async function load() {
    const page = await send(call(token), { signal });
    if (signal.aborted) return;
    token = page.nextPageToken;
    rows.append(
      ...page[items].map((each) =>
        h(
          "tr",
          {},
          row(each).map((cell) => h("td", {}, cell)),
        ),
      ),
    );
    more.hidden = !token;
    replace(
      panel,
      rows.childElementCount ? h("div", { class: "table-place" }, table) : empty(...[nothing].flat()),
      more,
    );
  }
  more.hidden = true;
  await next();
}
