// Flags of sealed links, and the passwords of sites.
import { X509Certificate } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { nkeys } from "nats";
import { sealOf } from "../../cli/serve/seal-flags.ts";
import { agent } from "../../cli/serve/agent.ts";
import { manager } from "../../cli/serve/manager.ts";
import { createRoot } from "../../lib/pki/index.ts";
import { isLeafSite, isSitePassword, sitePassword } from "../../lib/pki/site-password.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";

const places = ["nats://a:4222"];

test("--seal requires a site and URLs of NATS, and other flags require it", (t) => {
  t.is(sealOf({}, ["192.0.2.1:2377"]), null);
  t.deepEqual(sealOf({ seal: true, site: "lab" }, places), { site: "lab", caFile: null, credentialsFile: null });
  // A later start, whose data dir has the URLs.
  t.is(sealOf({ seal: true, site: "lab" }, [])?.site, "lab");
  const usage = (values: Parameters<typeof sealOf>[0], at: readonly string[], sentence: RegExp): void => {
    t.regex(t.throws(() => sealOf(values, at), { instanceOf: UsageError })?.message ?? "", sentence);
  };
  usage({ seal: true }, places, /^--seal requires --site/);
  usage({ seal: true, site: "a.b" }, places, /^invalid argument "a\.b" for "--site" flag: with --seal, expected/);
  usage({ seal: true, site: "lab" }, ["192.0.2.1:2377"], /^--seal requires --join with URLs of NATS/);
  usage({ "nats-ca": "ca" }, places, /^--nats-ca requires --seal/);
  usage({ "nats-credentials": "c" }, places, /^--nats-credentials requires --seal/);
});

test("files of --seal are checked before anything starts", async (t) => {
  const root = await createRoot();
  const folder = mkdtempSync(join(tmpdir(), "muster-seal-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const write = (name: string, contents: string | Uint8Array): string => {
    writeFileSync(join(folder, name), contents);
    return join(folder, name);
  };
  const seed = new TextDecoder().decode(nkeys.createUser().getSeed());
  const sealed = (values: object) => sealOf({ seal: true, site: "lab", ...values }, places);
  const credentialsFile = write("seed", `${seed}\n`);
  t.is(sealed({ "nats-credentials": credentialsFile })?.credentialsFile, credentialsFile);
  t.is(sealed({ "nats-ca": write("pem", root.certificatePem) })?.caFile, join(folder, "pem"));
  for (const [values, sentence] of [
    [{ "nats-credentials": write("other", "hello") }, /is unusable: expected a \.creds file of NATS, or the seed/],
    [
      { "nats-credentials": write("creds", "-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------\n") },
      /is unusable: expected a \.creds file of NATS, or the seed/,
    ],
    [{ "nats-credentials": "/nowhere/c" }, /^--nats-credentials \/nowhere\/c is unusable: ENOENT/],
    [{ "nats-ca": write("ca", "hello") }, /^--nats-ca .* is unusable/],
    // Connections need PEM.
    [{ "nats-ca": write("der", new X509Certificate(root.certificatePem).raw) }, /^--nats-ca .* is unusable/],
  ] as const)
    t.regex(t.throws(() => sealed(values), { instanceOf: UserError })?.message ?? "", sentence);
});

test("a URL has a password only with --seal, and a manager's leaf nodes and WebSockets need its nodes' NATS", async (t) => {
  const settings = (command: typeof agent, values: object) =>
    (command.checkSettings as (values: object) => Promise<unknown>)({ "data-dir": "/tmp/x", ...values });
  const join_ = ["nats://u:p@a:4222"];
  await t.notThrowsAsync(settings(agent, { join: join_, seal: true, site: "lab" }));
  await t.throwsAsync(settings(agent, { join: join_ }), { instanceOf: UsageError, message: /invalid argument "nats:/ });
  const leaf = { "listen-leaf-nodes": "127.0.0.1" };
  await t.throwsAsync(settings(manager, leaf), {
    instanceOf: UsageError,
    message: /^--listen-leaf-nodes requires --listen-nodes-nats/,
  });
  await t.throwsAsync(settings(manager, { "listen-nodes-wss": "127.0.0.1" }), {
    instanceOf: UsageError,
    message: /^--listen-nodes-wss requires --listen-nodes-nats/,
  });
  await t.notThrowsAsync(settings(agent, { join: ["wss://a", "wss://b:8443/nats"] }));
  await t.throwsAsync(settings(agent, { join: ["ws://a"] }), { instanceOf: UserError });
  await t.throwsAsync(settings(manager, { "leaf-nodes-name": ["x"] }), {
    instanceOf: UsageError,
    message: /^--leaf-nodes-name requires --listen-leaf-nodes/,
  });
});

test("a site's password is good for that site and token alone", (t) => {
  const password = sitePassword("token", "lab");
  t.true(isSitePassword(password, "token", "lab"));
  for (const [given, token, site] of [
    [password, "token", "attic"],
    [password, "other", "lab"],
    [`${password}x`, "token", "lab"],
    ["", "token", "lab"],
    [sitePassword("", "lab"), "", "lab"],
  ] as const)
    t.false(isSitePassword(given, token, site));
  t.deepEqual(["lab", "a-1_B", "a.b", "*", ">", "", "-a", "x".repeat(64)].map(isLeafSite), [
    true,
    true,
    ...Array<boolean>(6).fill(false),
  ]);
});
