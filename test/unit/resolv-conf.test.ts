// The content of a task's resolv.conf, and its path in a root of the task's own.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { insideRoot } from "../../drivers/exec/resolver.ts";
import { askedDns, nodeResolver, resolvConf } from "../../linux/task-network/resolv-conf.ts";
import { DNSConfig } from "../../proto/gen/nomad.ts";

const node = { servers: ["192.0.2.1"], searches: ["node.test"], options: ["rotate"] };
const asked = (of: Parameters<typeof DNSConfig.create>[0]): DNSConfig => DNSConfig.create(of);

test("each given part replaces the node's, and the others stay", (t) => {
  t.is(resolvConf(asked({}), node), "nameserver 192.0.2.1\nsearch node.test\noptions rotate\n");
  t.is(
    resolvConf(asked({ servers: ["2001:db8::1", "192.0.2.9"], options: ["ndots:1", "edns0"] }), node),
    "nameserver 2001:db8::1\nnameserver 192.0.2.9\nsearch node.test\noptions ndots:1 edns0\n",
  );
  t.is(resolvConf(asked({ searches: ["."] }), node), "nameserver 192.0.2.1\noptions rotate\n", "a dot: none");
  t.is(askedDns(asked({})), null);
  t.is(askedDns(null), null);
});

test("no value becomes a line of another kind", (t) => {
  for (const word of ["1.1.1.1\nnameserver 2.2.2.2", "a b", "", "a#b"])
    t.throws(() => resolvConf(asked({ servers: [word] }), node), { message: /for resolv.conf/ }, word);
});

test("the node's own resolv.conf is parsed as resolvers do, without servers that a task's own network cannot reach", (t) => {
  const files: Readonly<Record<string, string>> = {
    "/etc/resolv.conf":
      "# made by hand\nnameserver 127.0.0.53\ndomain a.test\nsearch b.test c.test ; later counts\noptions edns0\n\nnonsense\n",
    "/run/systemd/resolve/resolv.conf": "nameserver 192.0.2.7\nnameserver 127.0.0.1\nsearch d.test\n",
  };
  const read = (path: string): string => files[path] ?? "";
  const found = { servers: ["127.0.0.53"], searches: ["b.test", "c.test"], options: ["edns0"] };
  t.deepEqual(nodeResolver(false, read), found);
  t.deepEqual(nodeResolver(true, read), { ...found, servers: ["192.0.2.7"] });
  t.deepEqual(nodeResolver(true, () => "nameserver 192.0.2.8\nnameserver ::1\n").servers, ["192.0.2.8"]);
  t.deepEqual(
    nodeResolver(true, () => ""),
    { servers: [], searches: [], options: [] },
  );
});

test("a link inside a root never leads out of it", (t) => {
  const root = mkdtempSync(join(tmpdir(), "muster-root-"));
  t.teardown(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "etc"));
  symlinkSync("../../../../run/resolv", join(root, "etc", "up"));
  symlinkSync("/etc/up", join(root, "etc", "two"));
  symlinkSync("loop", join(root, "etc", "loop"));
  t.is(insideRoot(root, "/etc/plain"), join(root, "etc/plain"));
  t.is(insideRoot(root, "/etc/two"), join(root, "run/resolv"));
  t.throws(() => insideRoot(root, "/etc/loop"), { message: /too many levels of symbolic links/ });
});
