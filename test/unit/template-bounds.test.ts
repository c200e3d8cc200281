import test from "ava";
import { checkTemplates, triedVariables } from "../../machines/validation/template.ts";
import { taskContext, type TemplatedTask } from "../../lib/template/task-context.ts";
import { expand } from "../../lib/template/expand.ts";

const task: TemplatedTask = {
  id: "task",
  name: "web.1.task",
  slot: 1,
  serviceId: "service",
  serviceName: "web",
  serviceLabels: {},
  nodeId: "node",
  nodeHostname: "host",
  nodePlatform: { architecture: "x86_64", os: "linux" },
};

const doubled = (times: number, body: string): string =>
  `{{$x := "0123456789abcdef"}}{{range ${times}}}{{$x = printf "%s%s" $x $x}}{{end}}${body}`;

/** Each took from seconds to hours before values and time were bounded. */
const hostile: Readonly<Record<string, { readonly text: string; readonly reason: RegExp }>> = {
  "a value that doubles": { text: doubled(40, ""), reason: /value exceeds 1048576 characters/ },
  "a large value that is read repeatedly": {
    text: doubled(15, `{{range 5000000}}{{$n := len $x}}{{end}}`),
    reason: /exceeds \d+ steps/,
  },
  "a large value that is escaped repeatedly": {
    text: doubled(15, `{{range 5000000}}{{$n := html $x}}{{end}}`),
    reason: /exceeds \d+ steps/,
  },
  "escaping that makes a value six times as long": {
    text: `{{$x := "<"}}{{range 18}}{{$x = printf "%s%s" $x $x}}{{end}}{{$y := js $x}}`,
    reason: /value exceeds 1048576 characters/,
  },
  "a format of many wide columns": {
    text: `{{$x := "%10000d"}}{{range 10}}{{$x = printf "%s%s" $x $x}}{{end}}{{$y := printf $x 1}}${"{{$z := printf `%10000d` 1}}".repeat(3)}{{$y = printf "${"%10000d".repeat(200)}"${" 1".repeat(200)}}}`,
    reason: /value exceeds 1048576 characters/,
  },
  "a separator longer than the joined values": {
    text: doubled(13, `{{$y := join $x${' ""'.repeat(50)}}}`),
    reason: /value exceeds 1048576 characters/,
  },
  "many large arguments": {
    text: doubled(15, `{{$y := print${" $x".repeat(50)}}}`),
    reason: /arguments exceed \d+ characters/,
  },
  "a range over a number": { text: "{{range 4999999}}{{end}}", reason: /exceeds \d+ steps/ },
  "nested ranges": { text: "{{range 5000}}{{range 5000}}x{{end}}{{end}}", reason: /exceeds \d+ steps/ },
  "text in a range": {
    text: `{{range 10000}}${"x".repeat(10_000)}{{end}}`,
    reason: /exceeds \d+ (characters|steps)/,
  },
  "an excessive number of variables": {
    text: Array.from({ length: 20_000 }, (_, at) => `{{$v${at} := 1}}`).join(""),
    reason: /too many variables: the limit is 1000/,
  },
  "blanks before a trim marker that does not trim them": {
    text: `{{.Task.ID}}${" ".repeat(3_000_000)}x{{- .Task.ID}}`,
    reason: /exceeds \d+ (characters|steps)/,
  },
};

for (const [what, { reason, text }] of Object.entries(hostile)) {
  test(`a manager rejects ${what} within its bounds`, (t) => {
    const refusal = checkTemplates(triedVariables([`X=${text}`]));
    t.regex(refusal?.message ?? "accepted", reason);
    t.true((refusal?.message.length ?? 0) < 1_000);
  });

  test(`a node rejects ${what} within its bounds`, (t) => {
    const expansion = expand(text, taskContext(task));
    t.is(expansion.kind, "failed");
    if (expansion.kind === "failed") t.regex(expansion.reason, reason);
  });
}

test("the templates of one spec share one budget", (t) => {
  const each = "X={{range 900}}{{end}}";
  t.is(checkTemplates(triedVariables(Array.from({ length: 50 }, () => each))), null);
  t.regex(
    checkTemplates(triedVariables(Array.from({ length: 5_000 }, () => each)))?.message ?? "",
    /exceeds 100000 steps/,
  );
});

test("an environment of a hundred ordinary templates is far below the bounds", (t) => {
  const ordinary = 'NAME={{.Service.Name}}-{{.Task.Slot}}.{{with .Node.Hostname}}{{printf "%-10s" .}}{{end}}';
  t.is(checkTemplates(triedVariables(Array.from({ length: 100 }, () => ordinary))), null);
  const context = taskContext(task);
  for (let at = 0; at < 100; at += 1) t.is(expand(ordinary, context).kind, "text");
});
