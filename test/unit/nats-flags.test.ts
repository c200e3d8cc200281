import test from "ava";
import { sharedNatsOf } from "../../cli/serve/nats-flags.ts";
import { replicasOn } from "../../processes/shared-nats.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";

test("servers are given by repeated flags, or with commas; duplicates count once", (t) => {
  t.is(sharedNatsOf({}), null);
  const of = (...nats: readonly string[]): readonly string[] => sharedNatsOf({ nats })?.servers ?? [];
  t.deepEqual(of("nats://a", "nats://b:1"), ["nats://a", "nats://b:1"]);
  t.deepEqual(of("nats://u:p%2C@a, b:1,tls://c"), ["nats://u:p%2C@a", "b:1", "tls://c"]);
  t.deepEqual(of("nats://a:4222", "a"), ["a"]);
  for (const list of ["", "a,", "http://a", "nats://a,,nats://b"])
    t.regex(
      t.throws(() => of(list), { instanceOf: UsageError })?.message ?? "",
      /^--nats: invalid address of a nats-server/,
      list,
    );
});

test("three servers have three copies, fewer have one", (t) => {
  const replicas = (...nats: readonly string[]): number =>
    replicasOn({ servers: sharedNatsOf({ nats })?.servers ?? [] });
  t.deepEqual([replicas("a"), replicas("a,b"), replicas("a,b,c"), replicas("a,b,c,d,e")], [1, 1, 3, 3]);
  t.is(replicas("a,a:4222,nats://a"), 1);
});

test("TLS files require servers, and each other, and are checked before anything starts", (t) => {
  const usage = (values: Parameters<typeof sharedNatsOf>[0], sentence: RegExp): void => {
    t.regex(t.throws(() => sharedNatsOf(values), { instanceOf: UsageError })?.message ?? "", sentence);
  };
  usage({ "nats-ca": "ca.crt" }, /^--nats-ca requires --nats/);
  usage({ "nats-key": "k" }, /^--nats-key requires --nats/);
  usage({ "nats-move": true }, /^--nats-move requires --nats/);
  usage({ "nats-insecure": true }, /^--nats-insecure requires --nats/);
  usage({ "lease-ttl": "9s" }, /^--lease-ttl requires --nats/);
  usage(
    { nats: ["a"], "lease-ttl": "1s" },
    /^invalid argument "1s" for "--lease-ttl" flag: expected a duration from 3s to 60s/,
  );
  t.is(sharedNatsOf({ nats: ["a"], "lease-ttl": "9s" })?.leaseTtlMs, 9_000);
  usage({ nats: ["a"], "nats-cert": "c" }, /--nats-cert and --nats-key must be set together/);
  usage({ nats: ["a"], "nats-key": "k" }, /--nats-cert and --nats-key must be set together/);
  const missing = t.throws(() => sharedNatsOf({ nats: ["a"], "nats-ca": "/nowhere/ca" }), { instanceOf: UserError });
  t.regex(missing?.message ?? "", /^--nats-ca \/nowhere\/ca is unusable: ENOENT/);
});
