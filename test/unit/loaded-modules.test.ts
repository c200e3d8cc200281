// The modules that processes load: loading them is a large part of the time until a process is of use, and of a small one's memory.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import test from "ava";

const moduleAt = (path: string): string => new URL(`../../${path}`, import.meta.url).href;

/** URLs of all modules that a process loads which runs `script`, with `load(URL)` for its imports. */
async function loadedBy(script: string): Promise<readonly string[]> {
  const listing = `
    import { registerHooks } from "node:module";
    const urls = [];
    registerHooks({ load: (url, context, next) => (urls.push(url), next(url, context)) });
    ${script}
    console.log(urls.join("\\n"));
    process.exit(0);
  `;
  const args = ["--disable-warning=ExperimentalWarning", "--input-type=module", "--eval", listing];
  const { stdout } = await promisify(execFile)(process.execPath, args, { maxBuffer: 4 * 1024 * 1024 });
  return stdout.split("\n");
}

test("the process of a rehearsal does not load what it never uses: the JSON API and the age library", async (t) => {
  // It ends before a seed is requested.
  const urls = await loadedBy(`await import(${JSON.stringify(moduleAt("simulation/rehearsal/process.ts"))});`);
  t.true(urls.some((url) => url.endsWith("/simulation/rehearsal/run.ts")));
  const unneeded = /\/edges\/juju\/|\/actors\/json\/api\.ts|\/node_modules\/(?:age-encryption|@noble)\//;
  t.deepEqual(
    urls.filter((url) => unneeded.test(url)),
    [],
  );
});

test("an agent loads the libraries for WebSockets when it connects to a wss:// URL, and not before", async (t) => {
  const dialling = (url: string): Promise<readonly string[]> =>
    loadedBy(`
      await import(${JSON.stringify(moduleAt("cli/serve/agent.ts"))});
      await import(${JSON.stringify(moduleAt("processes/agent.ts"))});
      const { managerAt } = await import(${JSON.stringify(moduleAt("runtime/nats/node-connection.ts"))});
      await managerAt(${JSON.stringify(url)});`);
  const libraries = (urls: readonly string[]): readonly string[] => [
    ...new Set(urls.flatMap((url) => /\/node_modules\/(ws|@nats-io\/nats-core)\//.exec(url)?.[1] ?? [])),
  ];
  // Nothing answers there.
  t.deepEqual(libraries(await dialling("nats://127.0.0.1:1")), []);
  t.deepEqual(libraries(await dialling("wss://127.0.0.1:1")).toSorted(), ["@nats-io/nats-core", "ws"]);
});
