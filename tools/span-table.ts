/** The tables of spans and their attributes in docs/observability.md, written from their declarations. */
import { controlSpans, declaredSpans, spanAttributes, type SpanDeclaration } from "../runtime/telemetry/spans.ts";

const begin = "<!-- spans: written by `npm run reference` -->";
const end = "<!-- end of spans -->";

const quoted = (names: readonly string[]): string => names.map((name) => `\`${name}\``).join(", ");

function row(name: string, span: SpanDeclaration, attributes: readonly string[] = span.attributes): string {
  const { kind, links, means, parent, process } = span;
  const about = links === "" ? means : `${means}; has links to ${links}`;
  return `| ${name} | ${process} | ${kind} | ${parent} | ${about} | ${quoted(attributes)} |`;
}

/** The spans of calls of Control differ only in the object, so they share a row. */
function spanRows(): readonly string[] {
  const control: readonly SpanDeclaration[] = Object.values(controlSpans) as readonly SpanDeclaration[];
  const rows: string[] = [];
  for (const span of declaredSpans) {
    if (!control.includes(span)) rows.push(row(span.name.includes("'") ? span.name : `\`${span.name}\``, span));
    else if (span === control[0]) {
      const attributes = [...new Set(control.flatMap((each) => each.attributes))].sort();
      rows.push(row(quoted(control.map(({ name }) => name)), span, attributes));
    }
  }
  return rows;
}

function tables(): string {
  const attributes = Object.entries(spanAttributes).map(
    ([name, { means, type }]) => `| \`${name}\` | ${type} | ${means} |`,
  );
  return [
    begin,
    "",
    "| span | recorded by | kind | child of | from start to end | attributes |",
    "|---|---|---|---|---|---|",
    ...spanRows(),
    "",
    "| attribute | type | value |",
    "|---|---|---|",
    ...attributes,
    "",
    end,
  ].join("\n");
}

/** The page with current tables. Throws if it has no place for them. */
export function withSpanTables(page: string): string {
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`the page lacks ${begin} … ${end}`);
  return `${page.slice(0, from)}${tables()}${page.slice(to + end.length)}`;
}
