// The modules of a rehearsal's process: loading them is a large part of the time to the first result of `muster simulate`.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import test from "ava";

const program = new URL("../../simulation/rehearsal/process.ts", import.meta.url).href;

/** Prints the URL of every module that the program loads, and ends before a seed is requested. */
const listing = `
  import { registerHooks } from "node:module";
  const urls = [];
  registerHooks({ load: (url, context, next) => (urls.push(url), next(url, context)) });
  await import(${JSON.stringify(program)});
  console.log(urls.join("\\n"));
  process.exit(0);
`;

test("the process of a rehearsal does not load what it never uses: the JSON API and the age library", async (t) => {
  const args = ["--disable-warning=ExperimentalWarning", "--input-type=module", "--eval", listing];
  const { stdout } = await promisify(execFile)(process.execPath, args, { maxBuffer: 4 * 1024 * 1024 });
  const urls = stdout.split("\n");
  t.true(urls.some((url) => url.endsWith("/simulation/rehearsal/run.ts")));
  const unneeded = /\/edges\/juju\/|\/actors\/json\/api\.ts|\/node_modules\/(?:age-encryption|@noble)\//;
  t.deepEqual(
    urls.filter((url) => unneeded.test(url)),
    [],
  );
});
