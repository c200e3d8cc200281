/** Shared by the commands for secrets and configs: content from files, listings, lookup by id or name. */
import { readFileSync } from "node:fs";
import type { Annotations, Meta } from "../proto/gen/messages.ts";
import { UsageError } from "../lib/user-error.ts";
import { keyOf, labelFields, type Listing } from "./table.ts";
import { notThere, UserError } from "../lib/user-error.ts";
import { ago } from "./values.ts";

interface Content {
  readonly id: string;
  readonly meta: Meta | null;
  readonly spec: { readonly annotations: Annotations | null } | null;
}

/** Sorts `key2` before `key10`. */
const byName = new Intl.Collator("en", { numeric: true });

export function contentName({ spec }: Content): string {
  return spec?.annotations?.name ?? "";
}

/** The bytes of a file; `-` is standard input. Throws UserError. */
export function contentFrom(path: string): Uint8Array {
  try {
    return Uint8Array.from(readFileSync(path === "-" ? 0 : path));
  } catch (error) {
    const what = path === "-" ? "standard input" : path;
    const { code, message } = error as NodeJS.ErrnoException;
    throw new UserError(`cannot read ${what}: ${code === "ENOENT" ? "no such file or directory" : message}`, {
      cause: error,
    });
  }
}

/** Full id, then exact name, then unique prefix of an id. Throws UserError. */
export function findNamed<Item extends Content>(noun: string, text: string, items: readonly Item[]): Item {
  const exact = items.find(({ id }) => id === text) ?? items.find((item) => contentName(item) === text);
  if (exact !== undefined) return exact;
  const close = items.filter(({ id }) => text !== "" && id.startsWith(text));
  if (close.length > 1) throw new UserError(`${noun} ${text} is ambiguous (${close.length} matches found)`);
  if (close[0] === undefined) throw notThere(noun, text);
  return close[0];
}

/** Values of one key are ORed, keys are ANDed, as in Docker. Throws UsageError. */
export function matchingNamed(texts: readonly string[]): (item: Content) => boolean {
  const pairs = texts.map((text) => {
    const match = /^(id|name|label)=(.*)$/s.exec(text);
    if (match === null) throw new UsageError(`invalid filter "${text}": expected id=, name= or label=`);
    return { key: match[1] as string, value: match[2] as string };
  });
  const meets = (item: Content, key: string, value: string): boolean => {
    if (key === "id") return item.id.startsWith(value);
    if (key === "name") return contentName(item).startsWith(value);
    const at = value.indexOf("=");
    const held = item.spec?.annotations?.labels[at < 0 ? value : value.slice(0, at)];
    return held !== undefined && (at < 0 || held === value.slice(at + 1));
  };
  const byKey = Map.groupBy(pairs, ({ key }) => key);
  return (item) => [...byKey].every(([key, wanted]) => wanted.some(({ value }) => meets(item, key, value)));
}

/** Human-readable: id, name, labels and times. */
export function prettyContent(item: Content, now: number): readonly string[] {
  const lines = [`ID:\t\t${item.id}`, `Name:\t\t${contentName(item)}`];
  const entries = Object.entries(item.spec?.annotations?.labels ?? {}).toSorted(([a], [b]) => (a < b ? -1 : 1));
  if (entries.length > 0) lines.push("Labels:", ...entries.map(([key, value]) => ` - ${key}=${value}`));
  const { createdAt = null, updatedAt = null } = item.meta ?? {};
  return [...lines, `Created:\t${ago(createdAt, now)}`, `Updated:\t${ago(updatedAt, now)}`];
}

/** Docker's columns. */
export function contentListing<Item extends Content>(
  items: readonly Item[],
  now: number,
  json: (item: Item) => Record<string, unknown>,
  extra?: { readonly heading: string; readonly cell: (item: Item) => string },
): Listing {
  return {
    headings: ["ID", "NAME", ...(extra === undefined ? [] : [extra.heading]), "CREATED", "UPDATED"],
    keys: ["ID", "Name", ...(extra === undefined ? [] : [keyOf(extra.heading)]), "CreatedAt", "UpdatedAt"],
    rows: items
      .toSorted((a, b) => byName.compare(contentName(a), contentName(b)))
      .map((item) => ({
        id: item.id,
        cells: [
          item.id,
          contentName(item),
          ...(extra === undefined ? [] : [extra.cell(item)]),
          ago(item.meta?.createdAt ?? null, now),
          ago(item.meta?.updatedAt ?? null, now),
        ],
        object: () => json(item),
        fields: () => labelFields(item.spec?.annotations?.labels),
      })),
  };
}
