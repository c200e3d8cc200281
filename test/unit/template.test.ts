import test from "ava";
import fc from "fast-check";
import { dockerFunctions, EmptyField, parseTemplate, TemplateError } from "../../lib/template/template.ts";
import { goTemplateData, goTemplates } from "../fixtures/go-templates.ts";

function outcome(template: string, data: unknown = goTemplateData): string | null {
  try {
    return parseTemplate(template, dockerFunctions).execute(data);
  } catch (error) {
    if (error instanceof TemplateError) return null;
    throw error;
  }
}

for (const [template, printed] of goTemplates) {
  test(`${JSON.stringify(template)} produces Go's result`, (t) => {
    t.is(outcome(template), printed);
  });
}

test("an error is reported with its line and column", (t) => {
  const told = (template: string) =>
    t.throws(() => parseTemplate(template, dockerFunctions).execute(goTemplateData), { instanceOf: TemplateError })
      .message;
  t.is(told("{{.Name"), "template:1:1: unclosed action");
  t.is(told("a\nbb{{nope}}"), 'template:2:5: function "nope" not defined');
  t.is(told("{{if .Up}}x"), "template:1:3: {{if}} has no {{end}}");
  t.is(told("{{.Nope}}"), "template:1:3: can't evaluate field Nope: there is no such field");
  t.is(told("{{index .List 7}}"), "template:1:3: error calling index: index out of range: 7");
  t.is(told('{{template "x"}}'), "template:1:3: {{template}} is not supported");
});

test("a missing key can be an error, as in SwarmKit's templates", (t) => {
  const data = { Labels: new Map([["a", "b"]]) };
  t.is(parseTemplate("{{.Labels.x}}").execute(data), "<no value>");
  const strict = parseTemplate("{{.Labels.x}}", {}, { missingKey: "error" });
  t.throws(() => strict.execute(data), { message: 'template:1:3: map has no entry for key "x"' });
  t.is(parseTemplate('{{index .Labels "x"}}', {}, { missingKey: "error" }).execute(data), "");
});

test("nothing of JavaScript is reachable", (t) => {
  for (const name of ["constructor", "__proto__", "toString", "hasOwnProperty"]) {
    t.is(outcome(`{{.${name}}}`), null, name);
    t.is(outcome(`{{.Name.${name}}}`), null, name);
    t.is(outcome(`{{.Labels.${name}}}`), "<no value>", name);
    t.is(outcome(`{{${name}}}`), null, name);
  }
});

test("functions of an object take the arguments after them", (t) => {
  const data = { Label: (name: unknown) => `<${String(name)}>`, Plain: () => "p" };
  t.is(outcome('{{.Label "a.b"}} {{.Plain}} {{"x" | .Label}}', data), "<a.b> p <x>");
});

test("a field that JSON omits has its type's zero value; a nil pointer has no fields", (t) => {
  const data = { None: new EmptyField([]), Text: new EmptyField(""), Count: new EmptyField(0), Nothing: undefined };
  t.is(outcome("<{{.Text}}>{{.Count}}{{.None}}{{len .None}}{{if .Count}}x{{end}}", data), "<>0[]0");
  t.is(outcome("{{json .}}{{json .Count}}{{.Nothing}}{{if .Nothing}}x{{end}}", data), "{}0<nil>");
  t.is(outcome("{{.Nothing.State}}", data), null);
});

test("each template terminates", (t) => {
  const data = { List: Array.from({ length: 1_000 }, (_, at) => at) };
  const nested = "{{range .}}{{range $}}{{range $}}{{end}}{{end}}{{end}}";
  t.throws(() => parseTemplate(nested).execute(data.List), { message: /exceeds 5000000 steps/ });
  const loud = `{{range .}}{{range $}}{{printf "%10000d" 1}}{{end}}{{end}}`;
  t.throws(() => parseTemplate(loud).execute(data.List), { message: /output exceeds \d+ characters/ });
  t.is(outcome(`${"(".repeat(1_000)}`), "(".repeat(1_000));
  t.is(outcome(`{{${"(".repeat(10_000)}1${")".repeat(10_000)}}}`), null);
  t.is(outcome("{{if .Up}}".repeat(10_000)), null);
});

const pieces = [
  "{{",
  "}}",
  "{{-",
  "-}}",
  " ",
  ".",
  ".Name",
  ".List",
  "$",
  "$x",
  ":=",
  "=",
  "|",
  "(",
  ")",
  ",",
  '"a"',
  "`b`",
  "'c'",
  "1",
  "-1",
  "1.5",
  "if",
  "else",
  "end",
  "range",
  "with",
  "break",
  "index",
  "printf",
  "len",
  "and",
  "nil",
  "/*",
  "*/",
  "true",
  "\n",
  "x",
  "{{end}}",
  "{{range .List}}",
  "{{if .Up}}",
  "%d",
  '"%5d %s"',
  "\\",
  '"',
  "json",
  "{{.Labels.foo}}",
];

test("any text is parsed or rejected with a position inside of it", (t) => {
  const soup = fc.array(fc.constantFrom(...pieces), { maxLength: 30 }).map((words) => words.join(""));
  fc.assert(
    fc.property(fc.oneof(soup, fc.string()), (text) => {
      try {
        t.is(typeof parseTemplate(text, dockerFunctions).execute(goTemplateData), "string");
      } catch (error) {
        if (!(error instanceof TemplateError)) throw error;
        const lines = text.split("\n");
        const { column, line } = error.position;
        return line >= 1 && line <= lines.length && column >= 1 && column <= (lines[line - 1] ?? "").length + 1;
      }
      return true;
    }),
    { numRuns: 3_000 },
  );
});

test("text without braces stays unchanged", (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.string().filter((text) => !text.includes("{{")),
        (text) => outcome(text) === text,
      ),
    ),
  );
});

test("printf never fails, whatever its arguments", (t) => {
  const value = fc.oneof(
    fc.string(),
    fc.integer(),
    fc.double(),
    fc.boolean(),
    fc.constant(null),
    fc.array(fc.integer()),
  );
  t.notThrows(() =>
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom("%", "d", "s", "-", "0", "5", ".", "*", "x", "é", "v", "q")),
        value,
        (form, held) => {
          return outcome("{{printf .Form .Held}}", { Form: form.join(""), Held: held }) !== null;
        },
      ),
      { numRuns: 2_000 },
    ),
  );
});
