/** The rows of the tree of actors: what is stuck, then processes, kinds and actors. */
import { statesText, type Actor, type Actors, type Process } from "../../proto/feed/actors.ts";

export type Row =
  | { readonly type: "stuck"; readonly key: string; readonly level: 1; readonly open: boolean; readonly size: number }
  | {
      readonly type: "process";
      readonly key: string;
      readonly level: 1;
      readonly open: boolean;
      readonly process: Process;
      readonly size: number;
    }
  | {
      readonly type: "kind";
      readonly key: string;
      readonly level: 2;
      readonly open: boolean;
      readonly process: Process;
      readonly kind: string;
      readonly size: number;
    }
  | { readonly type: "actor"; readonly key: string; readonly level: 2 | 3; readonly actor: Actor };

export interface Filter {
  /** Words that the process, the id, or the states contain; any case. */
  readonly text: string;
  readonly onlyStuck: boolean;
}

/** Compares like `a < b`, which sorts ids faster than a collator does. */
const byId = (a: Actor, b: Actor): number => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);

export function matches(actor: Actor, words: readonly string[]): boolean {
  if (words.length === 0) return true;
  const text = `${actor.id} ${actor.process} ${statesText(actor.states)} ${actor.machine}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** `closed`: keys of rows whose children are hidden. While a text is searched, all are shown. */
export function rowsOf(
  actors: Actors,
  stuck: readonly Actor[],
  filter: Filter,
  closed: ReadonlySet<string>,
): readonly Row[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const isOpen = (key: string): boolean => words.length > 0 || !closed.has(key);
  const rows: Row[] = [];
  const shownStuck = stuck.filter((actor) => matches(actor, words));
  if (shownStuck.length > 0) {
    const open = isOpen("stuck");
    rows.push({ type: "stuck", key: "stuck", level: 1, open, size: shownStuck.length });
    if (open)
      for (const actor of shownStuck)
        rows.push({ type: "actor", key: `stuck\n${actor.process}\n${actor.id}`, level: 2, actor });
  }
  if (filter.onlyStuck) return rows;
  for (const process of [...actors.processes.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1))) {
    const kinds = new Map<string, Actor[]>();
    let size = 0;
    for (const actor of process.actors.values()) {
      if (!matches(actor, words)) continue;
      size += 1;
      const ofKind = kinds.get(actor.kind);
      if (ofKind === undefined) kinds.set(actor.kind, [actor]);
      else ofKind.push(actor);
    }
    if (size === 0 && words.length > 0) continue;
    const key = `process\n${process.id}`;
    const open = isOpen(key);
    rows.push({ type: "process", key, level: 1, open, process, size });
    if (!open) continue;
    for (const [kind, list] of [...kinds].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      const kindKey = `kind\n${process.id}\n${kind}`;
      const kindOpen = isOpen(kindKey);
      rows.push({ type: "kind", key: kindKey, level: 2, open: kindOpen, process, kind, size: list.length });
      if (!kindOpen) continue;
      for (const actor of list.sort(byId))
        rows.push({ type: "actor", key: `actor\n${process.id}\n${actor.id}`, level: 3, actor });
    }
  }
  return rows;
}
