// The log of a task: loads all existing entries, then follows new ones.

import { ops, send } from "./api.js";
import { ends } from "./fold.js";
import { follow } from "./stream.js";

const PAGE = 500;

export class TaskLog {
  constructor(id, ownerQuery) {
    Object.assign(this, { id, ownerQuery, entries: [], floor: 0, head: 0, ended: false, gap: false });
  }

  call(path, query = {}) {
    return ops("GET", `/tasks/${encodeURIComponent(this.id)}${path}`, { query: { ...this.ownerQuery, ...query } });
  }

  // Loads all existing entries. Sequence numbers have no gaps, so all pages load in parallel.
  async load(signal) {
    const first = await send(this.call("/log", { limit: PAGE }), { signal });
    this.floor = first.floor;
    this.head = first.head;
    const afters = [];
    for (let after = first.floor + PAGE; after < first.head; after += PAGE) afters.push(after);
    const rest = await Promise.all(
      afters.map((after) => send(this.call("/log", { after, limit: PAGE }), { signal, quiet: true })),
    );
    this.entries = [first, ...rest].flatMap((page) => page.entries);
    this.ended = this.entries.length > 0 && ends(this.entries.at(-1));
  }

  // Follows new entries until the task ends. If the log was trimmed meanwhile, the first event is a snapshot.
  async follow(signal, onEntries) {
    await follow({
      signal,
      after: this.last,
      call: (after) => ({ ...this.call("/events", { after: after ?? this.last }), after }),
      over: () => this.ended,
      onEvent: (entry) => {
        if (entry.snapshot) {
          this.gap = true;
          this.entries = [];
          this.floor = entry.seq;
          onEntries([entry]);
          return;
        }
        if (entry.seq <= this.last) return;
        this.entries.push(entry);
        this.ended = ends(entry);
        onEntries([entry]);
      },
    });
  }

  get last() {
    return this.entries.at(-1)?.seq ?? this.floor;
  }
}
