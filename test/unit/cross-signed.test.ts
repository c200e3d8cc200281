// A manager's certificate in the middle of a root rotation, as SwarmKit makes them; the certificates are OpenSSL's.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer } from "node:tls";
import test, { type ExecutionContext } from "ava";
import { connectTls } from "../../edges/grpc/client.ts";

interface Certificates {
  readonly oldRoot: string;
  readonly newRoot: string;
  readonly strangeRoot: string;
  /** Leaf of the new root, then the new root's name and key signed by the old one, without an authority key id. */
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

const withOpenssl = spawnSync("openssl", ["version"]).status === 0 ? test : test.skip;

withOpenssl(
  "a chain through a cross-certificate is trusted by who knows the old root, and by who knows the new one",
  async (t) => {
    const made = certificates(t, "swarm-manager");
    t.is(await connect(t, made, made.oldRoot), "connected");
    t.is(await connect(t, made, made.newRoot), "connected");
  },
);

withOpenssl("a root of the same name that signed nothing of it trusts nobody", async (t) => {
  const made = certificates(t, "swarm-manager");
  t.regex(await connect(t, made, made.strangeRoot), /its certificate is not trusted/);
});

withOpenssl("a cross-signed certificate for another name is refused", async (t) => {
  const made = certificates(t, "swarm-worker");
  t.regex(await connect(t, made, made.oldRoot), /its certificate is not trusted/);
  t.regex(await connect(t, made, made.newRoot), /its certificate is not trusted/);
});
