// Artifacts of exec tasks, fetched from a test server before the start.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { fetchArtifacts } from "../../drivers/exec/artifacts.ts";
import { findTools } from "../../linux/system-tools.ts";
import { execLab, type ExecLab } from "../fixtures/exec-lab.ts";

const asRoot = process.getuid?.() === 0 ? test : test.skip;
const program = "#!/bin/sh\necho fetched as $(id -un)\n";
const sha256 = (bytes: Buffer | string): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

interface Scene extends ExecLab {
  readonly url: string;
  readonly archive: Buffer;
  readonly asked: string[];
}

async function scene(t: ExecutionContext): Promise<Scene> {
  const lab = execLab(t);
  const folder = join(lab.folder, "served");
  mkdirSync(join(folder, "app"), { recursive: true });
  writeFileSync(join(folder, "app", "run"), program);
  chmodSync(join(folder, "app", "run"), 0o755);
  execFileSync("tar", ["-czf", join(folder, "app.tar.gz"), "-C", folder, "app"]);
  const archive = readFileSync(join(folder, "app.tar.gz"));
  const asked: string[] = [];
  const server: Server = createServer((request, response) => {
    asked.push(`${request.url} ${String(request.headers["x-key"] ?? "")}`);
    if (request.url === "/moved") return response.writeHead(302, { location: "/app.tar.gz" }).end();
    if (request.url === "/app.tar.gz" || request.url === "/broken.tgz") return response.end(archive);
    return request.url === "/run" ? response.end(program) : response.writeHead(404).end("no");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { ...lab, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, archive, asked };
}

const none = { destination: "local/", checksum: null, mode: "any", headers: {} };

asRoot("an archive is fetched, checked and unpacked as the task's user, and the task runs its program", async (t) => {
  const { archive, asked, folder, home, start, stdout, told, url } = await scene(t);
  chmodSync(folder, 0o755);
  chmodSync(join(home, "local"), 0o777);
  const artifact = [{ ...none, source: `${url}/app.tar.gz`, checksum: sha256(archive), headers: { "x-key": "k" } }];
  await (
    await start({ command: "local/app/run", artifact }, { user: "nobody" })
  ).exited;
  t.is(stdout(), "fetched as nobody\n");
  t.is(statSync(join(home, "local", "app", "run")).uid, 65_534);
  t.deepEqual(asked, ["/app.tar.gz k"]);
  t.deepEqual(told, [`fetching ${url}/app.tar.gz`]);
  t.deepEqual(readdirSync(home), ["local"]);
});

test("a file is written to its destination and can be executed; a redirect is followed", async (t) => {
  const { archive, home, start, stdout, url } = await scene(t);
  const artifact = [
    { ...none, source: `${url}/run`, mode: "file", destination: "bin/tools/it", checksum: sha256(program) },
    { ...none, source: `${url}/moved`, checksum: sha256(archive) },
  ];
  await (
    await start({ command: "bin/tools/it", artifact })
  ).exited;
  t.regex(stdout(), /^fetched as/);
  t.deepEqual(readFileSync(join(home, "local", "moved")), archive);
});

test("A1: an artifact with another checksum, or that cannot be fetched, rejects the task and leaves nothing", async (t) => {
  const { folder, home, start, url } = await scene(t);
  const allocation = join(folder, "alloc");
  const source = `${url}/app.tar.gz`;
  const wrong = [
    [{ source, checksum: `sha256:${"0".repeat(64)}` }, /sha256 mismatch: got [0-9a-f]{64}, expected 0{64}/],
    [{ source, checksum: "sha256:12" }, /invalid checksum/],
    [{ source, checksum: "crc:12345678" }, /invalid checksum/],
    [{ source: `${url}/gone` }, /gone: the server answered with status 404/],
    [{ source: "http://127.0.0.1:1/x" }, /artifact http:\/\/127\.0\.0\.1:1\/x: fetch failed/],
    [{ source: "ftp://127.0.0.1/x" }, /expected an http or https URL/],
    [{ source: "file:///etc/passwd" }, /expected an http or https URL/],
    [{ source, destination: "../out" }, /outside the task's directory/],
    [{ source, mode: "loose" }, /expected any, file or dir/],
    [{ source: `${url}/run`, mode: "dir" }, /run is not an archive/],
  ] as const;
  for (const [artifact, message] of wrong) {
    await t.throwsAsync(start({ artifact: [{ ...none, ...artifact }] }), { message }, JSON.stringify(artifact));
    t.deepEqual(readdirSync(home), ["local"]);
    t.deepEqual(readdirSync(join(home, "local")), []);
    t.deepEqual(readdirSync(allocation), ["web"]);
  }
});

asRoot("A2: an artifact is never written where the task's user may not write", async (t) => {
  const { folder, home, start, url } = await scene(t);
  chmodSync(folder, 0o755);
  symlinkSync(folder, join(home, "away"));
  const artifact = [{ ...none, source: `${url}/run`, destination: "away" }];
  await t.throwsAsync(start({ artifact }, { user: "nobody" }), {
    message: /cannot place it in .*: .*Permission denied/,
  });
  t.false(existsSync(join(folder, "run")));
});

test("an artifact larger than its limit is abandoned", async (t) => {
  const { home, url } = await scene(t);
  const tools = findTools(process.env["PATH"] ?? "");
  const options = { home, user: null, tools, tell: () => {}, bytesMax: 10 };
  await t.throwsAsync(fetchArtifacts([{ ...none, source: `${url}/run` }], options), {
    message: /larger than 10 bytes/,
  });
  t.deepEqual(readdirSync(home), ["local"]);
});
