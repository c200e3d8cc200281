// JSON API redirects: a stock client follows them.
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { modelUuid } from "../../edges/juju/model.ts";
import { jsonWorld, password } from "../support/json-api.ts";

const program = fileURLToPath(new URL("../fixtures/jujulib-client.ts", import.meta.url));

test("a stock client whose login is redirected logs in there", async (t) => {
  const there = await jsonWorld(t);
  await there.addUser("ada");
  const here = await jsonWorld(t, { redirect: [{ host: "localhost", port: there.port }] });
  const dir = mkdtempSync(join(tmpdir(), "muster-jujulib-"));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const ca = join(dir, "ca.pem");
  writeFileSync(ca, here.rootPem + there.rootPem);
  // It writes its model into the address that it connects to: that of the original address.
  const path = `/model/${modelUuid([...there.store.all("cluster")][0]?.id ?? "")}/api`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [program, `wss://localhost:${here.port}${path}`, "ada", password, "redirected"],
    { env: { ...process.env, NODE_EXTRA_CA_CERTS: ca } },
  );
  t.deepEqual(JSON.parse(stdout), { identity: "user-ada" });
});
