/** Listings in Docker's formats: aligned columns, one JSON object per line, ids only, or a template. */
import { jsonText } from "../lib/template/template.ts";
import { filled, readFormat, type TemplateFormat } from "./format.ts";
import type { Shell } from "./shell.ts";
import { cutTo, padEndTo, printable, textWidth } from "./text-width.ts";

interface Spacing {
  /** Minimum width of a column with its padding, in terminal columns. */
  readonly columnWidthMin: number;
  /** Blanks after a column. */
  readonly padding: number;
}

/** Docker's tab writer: columns at least 10 wide, padded by 3 blanks. */
const dockerSpacing: Spacing = { columnWidthMin: 10, padding: 3 };
/** Used when the headings do not fit with Docker's spacing. */
const tightSpacing: Spacing = { columnWidthMin: 0, padding: 1 };
/** Cells are not cut below this width. */
const cellWidthMin = 8;

export interface Row {
  readonly id: string;
  /** Displayed values, in the order of the headings. */
  readonly cells: readonly string[];
  /** The row's object, for JSON. */
  readonly object: () => Record<string, unknown>;
  /** Extra fields for templates, and columns that templates get in another form. */
  readonly fields?: () => Readonly<Record<string, unknown>>;
}

export interface Listing {
  /** Headings in capitals, such as `CURRENT STATE`. */
  readonly headings: readonly string[];
  /** Template names of the columns; default: the headings in camel case, such as `CurrentState`. */
  readonly keys?: readonly string[];
  readonly rows: readonly Row[];
}

export interface ListingOptions {
  readonly format?: string | undefined;
  readonly quiet?: boolean | undefined;
  readonly "no-trunc"?: boolean | undefined;
}

/** Never cut: readers need the full reason of a failure, and whether an actor is stuck. */
const wholeColumns: readonly string[] = ["ERROR", "NEXT DEADLINE", "REASON", "WHY"];

/** Total width of a table, in terminal columns. */
function tableWidth(widths: readonly number[], { columnWidthMin, padding }: Spacing): number {
  const last = widths.length - 1;
  return widths.reduce(
    (sum, width, column) => sum + (column === last ? width : Math.max(columnWidthMin, width + padding)),
    0,
  );
}

/** Shrinks columns to fit `available` terminal columns: the widest first, none below its minimum. */
function fitted(
  widths: readonly number[],
  least: readonly number[],
  available: number,
  spacing: Spacing,
): readonly number[] {
  const capped = (cap: number): readonly number[] =>
    widths.map((width, column) => Math.min(width, Math.max(cap, least[column] ?? 0)));
  let cap = Math.max(...widths);
  while (cap > cellWidthMin && tableWidth(capped(cap), spacing) > available) cap -= 1;
  return capped(cap);
}

function widthsOf(lines: readonly (readonly string[])[]): readonly number[] {
  const columns = Math.max(...lines.map((cells) => cells.length));
  return Array.from({ length: columns }, (_, column) =>
    Math.max(...lines.map((cells) => textWidth(cells[column] ?? ""))),
  );
}

/** Drops columns that are empty in every row. */
function withoutEmpty(lines: readonly (readonly string[])[]): readonly (readonly string[])[] {
  const [, ...rows] = lines;
  return lines.map((cells) => cells.filter((_, column) => rows.some((row) => (row[column] ?? "") !== "")));
}

interface Layout {
  /** Width of each column, without padding. */
  readonly widths: readonly number[];
  readonly spacing: Spacing;
}

/** The widest layout whose headings fit into the terminal; the last resort cuts headings too. */
function layoutFor(lines: readonly (readonly string[])[], available: number): Layout {
  const [heads = []] = lines;
  const natural = widthsOf(lines);
  const isWhole = (column: number): boolean => column === 0 || wholeColumns.includes(heads[column] ?? "");
  const byHeading = natural.map((room, column) =>
    isWhole(column) ? room : Math.max(cellWidthMin, textWidth(heads[column] ?? "")),
  );
  const cutHeadings = natural.map((room, column) => (isWhole(column) ? room : cellWidthMin));
  const layout = (least: readonly number[], spacing: Spacing): Layout => ({
    widths: fitted(natural, least, available, spacing),
    spacing,
  });
  // Uncut columns may overflow: only their headings have to fit.
  const fits = ({ widths, spacing }: Layout): boolean => {
    const needed = widths.map((room, column) =>
      column > 0 && isWhole(column) ? textWidth(heads[column] ?? "") : room,
    );
    return tableWidth(needed, spacing) <= available;
  };
  const layouts = [layout(byHeading, dockerSpacing), layout(byHeading, tightSpacing)];
  return layouts.find(fits) ?? layout(cutHeadings, tightSpacing);
}

/**
 * `width`: columns of the terminal; null without one, and nothing is cut. A table that is too wide first loses empty columns;
 * then cells are cut, then the padding shrinks, then headings are cut. The first column (the id), errors and reasons are never
 * cut; they overflow.
 */
export function formatTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  width: number | null = null,
): string {
  const whole = [headings, ...rows].map((cells) => cells.map(printable));
  const isTooWide = width !== null && tableWidth(widthsOf(whole), dockerSpacing) > width;
  const lines = isTooWide && rows.length > 0 ? withoutEmpty(whole) : whole;
  const { widths, spacing } = isTooWide ? layoutFor(lines, width) : { widths: widthsOf(lines), spacing: dockerSpacing };
  return lines
    .map((cells) =>
      cells
        .map((cell, column) => {
          const room = widths[column] ?? 0;
          return padEndTo(cutTo(cell, room), Math.max(spacing.columnWidthMin, room + spacing.padding));
        })
        .join("")
        .trimEnd(),
    )
    .join("\n");
}

/** `CURRENT STATE` → `CurrentState`, `ID` → `ID`: the field names of Docker's listings. */
export function keyOf(heading: string): string {
  if (heading === "ID") return heading;
  return heading
    .split(" ")
    .map((word) => word.charAt(0) + word.slice(1).toLowerCase())
    .join("");
}

/** `CurrentState` → `CURRENT STATE`: the heading of a template's column. */
function headingOf(key: string): string {
  return key.replaceAll(/([a-z])([A-Z])/g, "$1 $2").toUpperCase();
}

/** Fields sorted by name, like Docker's `{{json .}}`. */
function sorted(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Adds SwarmKit's fields (`{{.spec.annotations.name}}`), hidden from the whole object. */
function withHidden(
  shown: Readonly<Record<string, unknown>>,
  hidden: () => Readonly<Record<string, unknown>>,
  { usesWire }: TemplateFormat,
): object {
  if (!usesWire) return shown;
  const known = Object.entries(hidden()).filter(([key]) => !Object.hasOwn(shown, key));
  return Object.defineProperties(
    { ...shown },
    Object.fromEntries(known.map(([key, value]) => [key, { value, enumerable: false }])),
  );
}

export function printListing(
  shell: Shell,
  { headings, keys = headings.map(keyOf), rows }: Listing,
  { format, quiet, "no-trunc": isWhole }: ListingOptions,
): void {
  const chosen = readFormat(format);
  const columnsOf = ({ cells }: Row): Record<string, unknown> =>
    Object.fromEntries(keys.map((key, at) => [key, (cells[at] ?? "").trim()]));
  const fieldsOf = (row: Row): Record<string, unknown> => sorted({ ...columnsOf(row), ...row.fields?.() });
  const width = isWhole === true ? null : (shell.width ?? null);
  if (quiet === true) {
    for (const { id } of rows) shell.print(id);
    return;
  }
  switch (chosen.kind) {
    case "json":
      for (const row of rows) {
        const texts = Object.entries(fieldsOf(row)).filter(([, value]) => typeof value !== "function");
        shell.print(jsonText({ ...row.object(), ...Object.fromEntries(texts), ID: row.id }));
      }
      return;
    case "wire":
      for (const { object } of rows) shell.print(JSON.stringify(object()));
      return;
    case "template":
      for (const row of rows)
        shell.print(filled(chosen.template, withHidden(fieldsOf(row), row.object, chosen.template)));
      return;
    case "table": {
      if (chosen.template === null) {
        const cells = rows.map((row) => row.cells);
        shell.print(formatTable(headings, cells, width));
        return;
      }
      const { template } = chosen;
      const [first] = rows;
      const names = first === undefined ? keys : Object.keys(fieldsOf(first));
      const heads = Object.fromEntries(names.map((key) => [key, headings[keys.indexOf(key)] ?? headingOf(key)]));
      const cells = rows.map((row) => filled(template, withHidden(fieldsOf(row), row.object, template)).split("\t"));
      shell.print(formatTable(headOf(template, heads).split("\t"), cells, width));
    }
  }
}

/** Renders the template on the headings; empty when it uses a cell as more than text. */
function headOf(template: TemplateFormat, heads: Readonly<Record<string, unknown>>): string {
  try {
    return filled(template, { ...heads, Label: (name: unknown) => String(name) });
  } catch {
    return "";
  }
}

/** `Labels` in the format of Docker's listings, and `{{.Label "key"}}`. */
export function labelFields(labels: Readonly<Record<string, string>> | undefined): Readonly<Record<string, unknown>> {
  const held = labels ?? {};
  return {
    Labels: Object.entries(held)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, value]) => `${key}=${value}`)
      .join(","),
    Label: (key: unknown) => (typeof key === "string" && Object.hasOwn(held, key) ? held[key] : ""),
  };
}

/** An inspected object, with Docker's names and with SwarmKit's. */
export interface Inspected {
  readonly docker: Readonly<Record<string, unknown>>;
  readonly wire: () => Readonly<Record<string, unknown>>;
}

/**
 * Prints like Docker's `inspect`: an indented array; with `--format json` the array on one line; with `--format wire`
 * SwarmKit's own fields, one object per line; with a template one line per object.
 */
export function printInspected(shell: Shell, objects: readonly Inspected[], format: string | undefined): void {
  const chosen = readFormat(format);
  const all = objects.map(({ docker }) => docker);
  switch (chosen.kind) {
    case "json":
      shell.print(jsonText(all));
      return;
    case "wire":
      for (const { wire } of objects) shell.print(JSON.stringify(wire()));
      return;
    case "template":
      for (const { docker, wire } of objects) {
        // Docker's networks have `Id` where other objects have `ID`; its templates accept both.
        const hidden = (): Record<string, unknown> => ({ ID: docker["Id"], ...wire() });
        const needed = { ...chosen.template, usesWire: chosen.template.usesWire || !Object.hasOwn(docker, "ID") };
        shell.print(filled(chosen.template, withHidden(docker, hidden, needed)));
      }
      return;
    case "table":
      shell.print(jsonText(all, 4));
  }
}
