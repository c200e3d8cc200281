/** Listings as Docker prints them: columns by tab stops, one JSON object a line, or ids alone. */
import { formatOf } from "./command.ts";
import type { Shell } from "./shell.ts";

/** Docker's tab writer: a column is at least 10 wide and has 3 blanks after it. */
const columnWidthMin = 10;
const padding = 3;

export interface Row {
  readonly id: string;
  /** As shown, in the order of the headings. */
  readonly cells: readonly string[];
  /** The object behind the row, as its own JSON. */
  readonly object: () => Record<string, unknown>;
}

export interface Listing {
  /** Headings in capitals, such as `CURRENT STATE`. */
  readonly headings: readonly string[];
  readonly rows: readonly Row[];
}

export function formatTable(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [headings, ...rows];
  const widths = headings.map((_, column) =>
    Math.max(columnWidthMin, ...lines.map((cells) => (cells[column] ?? "").length + padding)),
  );
  return lines
    .map((cells) =>
      cells
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("")
        .trimEnd(),
    )
    .join("\n");
}

/** `CURRENT STATE` → `CurrentState`, `ID` → `ID`: the names of Docker's own JSON listings. */
function jsonKey(heading: string): string {
  if (heading === "ID") return heading;
  return heading
    .split(" ")
    .map((word) => word.charAt(0) + word.slice(1).toLowerCase())
    .join("");
}

export function printListing(
  shell: Shell,
  { headings, rows }: Listing,
  { format, quiet }: { readonly format?: string | undefined; readonly quiet?: boolean | undefined },
): void {
  const chosen = formatOf(format);
  if (quiet === true) {
    for (const { id } of rows) shell.print(id);
  } else if (chosen === "json") {
    for (const { id, cells, object } of rows) {
      const columns = Object.fromEntries(headings.map((heading, at) => [jsonKey(heading), (cells[at] ?? "").trim()]));
      shell.print(JSON.stringify({ ...object(), ...columns, ID: id }));
    }
  } else {
    shell.print(
      formatTable(
        headings,
        rows.map(({ cells }) => cells),
      ),
    );
  }
}

/** Docker's `inspect`: an array, indented; with `--format json` one object a line. */
export function printObjects(
  shell: Shell,
  objects: readonly Record<string, unknown>[],
  format: string | undefined,
): void {
  if (format !== undefined && formatOf(format) === "json")
    for (const object of objects) shell.print(JSON.stringify(object));
  else shell.print(JSON.stringify(objects, null, 4));
}
