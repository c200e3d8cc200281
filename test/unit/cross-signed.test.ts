// A manager's certificate during a root rotation, as SwarmKit creates them; OpenSSL creates these.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectSocket, createServer } from "node:tls";
import test, { type ExecutionContext } from "ava";
import { connectTls } from "../../edges/grpc/client.ts";
import { createAdmission } from "../../edges/grpc/admission/admission.ts";
import { listenTls } from "../../edges/grpc/listener.ts";
import * as pki from "../../lib/pki/index.ts";
import { telemetry } from "../support/grpc-world.ts";

interface Certificates {
  readonly oldRoot: string;
  readonly newRoot: string;
  readonly strangeRoot: string;
  /** A leaf of the new root, then the new root's name and key signed by the old one, without an authority key id. */
  readonly chain: string;
  readonly key: string;
}

function certificates(t: ExecutionContext, dnsName: string): Certificates {
  const folder = mkdtempSync(join(tmpdir(), "muster-cross-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const openssl = (...args: readonly string[]): void =>
    void execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  const read = (name: string): string => readFileSync(join(folder, name), "utf8");
  writeFileSync(
    join(folder, "ca.ext"),
    "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=none\n",
  );
  writeFileSync(
    join(folder, "leaf.ext"),
    `basicConstraints=CA:FALSE\nsubjectAltName=DNS:${dnsName}\nextendedKeyUsage=serverAuth,clientAuth\nauthorityKeyIdentifier=keyid\n`,
  );
  const request = (name: string, subject: string): void => {
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", `${name}.key`);
    openssl("req", "-new", "-key", `${name}.key`, "-subj", subject, "-out", `${name}.csr`);
  };
  for (const root of ["r1", "r2", "r3"]) {
    request(root, "/CN=swarm-ca");
    openssl(
      "x509",
      "-req",
      "-in",
      `${root}.csr`,
      "-signkey",
      `${root}.key`,
      "-days",
      "2",
      "-extfile",
      "ca.ext",
      "-out",
      `${root}.pem`,
    );
  }
  openssl(
    "x509",
    "-req",
    "-in",
    "r2.csr",
    "-CA",
    "r1.pem",
    "-CAkey",
    "r1.key",
    "-CAcreateserial",
    "-days",
    "2",
    "-extfile",
    "ca.ext",
    "-out",
    "cross.pem",
  );
  request("leaf", "/O=c/OU=swarm-manager/CN=n");
  openssl(
    "x509",
    "-req",
    "-in",
    "leaf.csr",
    "-CA",
    "r2.pem",
    "-CAkey",
    "r2.key",
    "-CAcreateserial",
    "-days",
    "2",
    "-extfile",
    "leaf.ext",
    "-out",
    "leaf.pem",
  );
  return {
    oldRoot: read("r1.pem"),
    newRoot: read("r2.pem"),
    strangeRoot: read("r3.pem"),
    chain: read("leaf.pem") + read("cross.pem"),
    key: read("leaf.key"),
  };
}

async function connect(t: ExecutionContext, { chain, key }: Certificates, rootPem: string): Promise<string> {
  const server = createServer(
    { cert: chain, key, ALPNProtocols: ["h2"] },
    (socket) => void socket.on("error", () => {}),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  try {
    const channel = await connectTls({
      host: "127.0.0.1",
      port: (server.address() as AddressInfo).port,
      rootPem,
      serverName: "swarm-manager",
      timeoutMs: 5_000,
    });
    channel.close();
    return "connected";
  } catch (error) {
    return (error as Error).message;
  }
}

/** How a manager that trusts `rootPem` sees a client with the chain; null: as a member. */
async function rejection(t: ExecutionContext, made: Certificates, rootPem: string): Promise<string | null> {
  const server = await pki.createRoot();
  const { csrPem, keyPem } = await pki.createKeyAndCsr();
  const certificatePem = await pki.issue({
    csrPem,
    rootCertificatePem: server.certificatePem,
    rootKeyPem: server.keyPem,
    nodeId: "m",
    role: "swarm-manager",
    organization: "c",
    validitySeconds: 3_600,
    nowMs: Date.now(),
  });
  return new Promise((resolve, reject) => {
    // Trusts nobody at first: the roots set later count.
    const credentials = { certificatePem, keyPem, rootPem: server.certificatePem };
    void listenTls(
      { host: "127.0.0.1", port: 0, credentials, admission: createAdmission(telemetry().ports) },
      (socket, caller) => {
        socket.destroy();
        resolve(caller.isCertified ? null : (caller.rejection ?? "no certificate"));
      },
    ).then((listener) => {
      t.teardown(() => listener.close());
      listener.setCredentials({ ...credentials, rootPem });
      const client = connectSocket({
        host: "127.0.0.1",
        port: listener.port,
        cert: made.chain,
        key: made.key,
        rejectUnauthorized: false,
      });
      client.on("error", () => {});
      t.teardown(() => client.destroy());
    }, reject);
  });
}

const withOpenssl = spawnSync("openssl", ["version"]).status === 0 ? test : test.skip;

withOpenssl(
  "a chain through a cross-certificate is trusted by holders of the old root, and of the new one",
  async (t) => {
    const made = certificates(t, "swarm-manager");
    t.is(await connect(t, made, made.oldRoot), "connected");
    t.is(await connect(t, made, made.newRoot), "connected");
  },
);

withOpenssl("a root of the same name that signed none of it is not trusted", async (t) => {
  const made = certificates(t, "swarm-manager");
  t.regex(await connect(t, made, made.strangeRoot), /its certificate is not trusted/);
});

withOpenssl("a cross-signed certificate for another name is rejected", async (t) => {
  const made = certificates(t, "swarm-worker");
  t.regex(await connect(t, made, made.oldRoot), /its certificate is not trusted/);
  t.regex(await connect(t, made, made.newRoot), /its certificate is not trusted/);
});

withOpenssl(
  "a node with a chain through a cross-certificate belongs to the cluster for a manager of either root",
  async (t) => {
    const made = certificates(t, "swarm-worker");
    t.is(await rejection(t, made, made.oldRoot), null);
    t.is(await rejection(t, made, made.newRoot), null);
    t.is(await rejection(t, made, made.strangeRoot), "SELF_SIGNED_CERT_IN_CHAIN");
  },
);

/** Root and leaf, created by a manager with a wrong clock. */
async function madeAt(role: "swarm-manager" | "swarm-worker", nowMs: number): Promise<Certificates> {
  const root = await pki.createRoot({ nowMs });
  const { csrPem, keyPem } = await pki.createKeyAndCsr();
  const chain = await pki.issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId: "n",
    role,
    organization: "c",
    validitySeconds: 90 * 86_400,
    nowMs,
  });
  const [newRoot, strangeRoot] = [root.certificatePem, (await pki.createRoot({ nowMs })).certificatePem];
  return { oldRoot: newRoot, newRoot, strangeRoot, chain, key: keyPem };
}

test("certificates dated by a clock that was ahead are trusted only by nodes and managers of their root", async (t) => {
  const aheadMs = Date.now() + 4 * 3_600_000;
  const manager = await madeAt("swarm-manager", aheadMs);
  t.is(await connect(t, manager, manager.newRoot), "connected");
  t.regex(await connect(t, manager, manager.strangeRoot), /its certificate is not trusted/);
  const worker = await madeAt("swarm-worker", aheadMs);
  t.is(await rejection(t, worker, worker.newRoot), null);
  t.not(await rejection(t, worker, worker.strangeRoot), null);
  // Its name is not a manager's.
  t.regex(await connect(t, worker, worker.newRoot), /its certificate is not trusted/);
});

test("an expired certificate is never trusted", async (t) => {
  const longAgoMs = Date.now() - 91 * 86_400_000;
  const manager = await madeAt("swarm-manager", longAgoMs);
  t.regex(await connect(t, manager, manager.newRoot), /its certificate is not trusted/);
  const worker = await madeAt("swarm-worker", longAgoMs);
  t.is(await rejection(t, worker, worker.newRoot), "CERT_HAS_EXPIRED");
});
