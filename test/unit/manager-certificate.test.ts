// A manager's own certificate during root rotation.
import test from "ava";
import { startManagerCertificate } from "../../actors/certificates/manager-certificate.ts";
import {
  managerCertificateMachine,
  managerCertificateTimes,
} from "../../machines/certificates/manager-certificate.machine.ts";
import {
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeDescription,
  NodeTLSInfo,
} from "../../proto/gen/messages.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import * as pki from "../../lib/pki/index.ts";
import { ChartRun } from "../support/chart-run.ts";
import { bytes, ensureManagerCertificate, facts, rootWorld, text, worker } from "../support/roots.ts";

test("during a rotation a manager presents a chain that both roots authenticate, and accepts certificates of both", async (t) => {
  const { cluster, env, held, hold, update } = await rootWorld(t);
  const oldRoot = text.decode(cluster().rootCa?.caCert);
  const newRoot = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  const during = await ensureManagerCertificate(env, pki, held(), facts);
  t.true(during.isNew);
  t.is(during.rootPem, oldRoot);
  t.is(during.acceptedPem, oldRoot + newRoot);
  const read = pki.describeCertificate(during.certificatePem, oldRoot);
  for (const root of [oldRoot, newRoot]) t.true(read.kind === "certificate" && read.verify(root, Date.now()));
  hold(during);
  t.false((await ensureManagerCertificate(env, pki, held(), facts)).isNew);
});

test("a manager that was away at the end of a rotation still trusts managers in the next one", async (t) => {
  const { cluster, env, held, hold, rotation, run, seed, update } = await rootWorld(t);
  const rootNow = (): string => text.decode(cluster().rootCa?.caCert);
  const first = rootNow();
  rotation();
  const second = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  hold(await ensureManagerCertificate(env, pki, held(), facts));
  // It has a certificate of the second root, but does not know yet that this one is trusted.
  const sleeper = worker("sleeper", second);
  const tlsInfo = NodeTLSInfo.patch(sleeper.description?.tlsInfo as NodeTLSInfo, { trustRoot: bytes.encode(first) });
  seed("node", Node.patch(sleeper, { description: NodeDescription.create({ tlsInfo }) }));
  await run(() => rootNow() === second);
  t.is(rootNow(), second);
  const third = text.decode((await update({ forceRotate: 2 })).rootCa?.rootRotation?.caCert);
  hold(await ensureManagerCertificate(env, pki, held(), facts));
  const read = pki.describeCertificate(held().certificatePem, first);
  for (const root of [first, second, third]) t.true(read.kind === "certificate" && read.verify(root, Date.now()));
  // Once it knows, the chain to the first root is dropped with the next certificate.
  seed("node", worker("sleeper", second));
  const node = env.store.get("node", "manager1") as Node;
  const status = IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE });
  seed("node", Node.patch(node, { certificate: Certificate.patch(node.certificate as Certificate, { status }) }));
  hold(await ensureManagerCertificate(env, pki, held(), facts));
  const later = pki.describeCertificate(held().certificatePem, second);
  t.true(later.kind === "certificate" && later.verify(second, Date.now()));
  t.false(later.kind === "certificate" && later.verify(first, Date.now()));
});

test("a manager renews its certificate by itself when another root signs, and when its node is told to renew", async (t) => {
  const { cluster, env, run, seed, store, held, hold, update } = await rootWorld(t);
  const seen: string[] = [];
  const keeper = startManagerCertificate(env, pki, {
    facts,
    load: held,
    save: hold,
    onClockJump: () => {},
    onCertificate: ({ certificatePem }) => void seen.push(certificatePem),
  });
  t.teardown(() => keeper.stop());
  await run(() => seen.length === 1);
  await update({ forceRotate: 1 });
  await run(() => seen.length === 2);
  const issuer = pki.issuerName(text.decode(cluster().rootCa?.rootRotation?.caCert));
  const shown = store.get("node", "manager1")?.description?.tlsInfo?.certIssuerPublicKey;
  t.deepEqual(Buffer.from(shown ?? []), Buffer.from(issuer?.publicKeyDer ?? []));
  const node = store.get("node", "manager1") as Node;
  const status = IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE });
  seed("node", Node.patch(node, { certificate: Certificate.patch(node.certificate as Certificate, { status }) }));
  await run(() => seen.length === 3);
  t.is(new Set(seen).size, 3);
  t.is(store.get("node", "manager1")?.certificate?.status?.state, IssuanceStatus_State.ISSUED);
});

test("a manager presents a certificate before its node reports it: a rotation ends, and old roots are distrusted, once all report it", async (t) => {
  const { clock, env, run, store, held, hold, update } = await rootWorld(t);
  const issuerTold = () => Buffer.from(store.get("node", "manager1")?.description?.tlsInfo?.certIssuerPublicKey ?? []);
  const shown: { readonly told: Buffer; readonly own: Buffer }[] = [];
  let isBroken = false;
  const proposer: typeof env.proposer = {
    propose: (request) => (isBroken ? Promise.reject(new Error("no leader")) : env.proposer.propose(request)),
  };
  const keeper = startManagerCertificate({ ...env, proposer }, pki, {
    facts,
    load: held,
    save: hold,
    onClockJump: () => {},
    onCertificate: ({ acceptedPem, certificatePem }) => {
      const read = pki.describeCertificate(certificatePem, acceptedPem);
      const own = read.kind === "certificate" ? Buffer.from(read.issuerPublicKeyDer ?? []) : Buffer.alloc(0);
      shown.push({ told: issuerTold(), own });
    },
  });
  t.teardown(() => keeper.stop());
  await run(() => shown.length === 1);
  // The first certificate of its life was reported before it could be presented.
  t.deepEqual(shown[0]?.told, shown[0]?.own);
  isBroken = true;
  await update({ forceRotate: 1 });
  await run(() => shown.length === 2);
  t.notDeepEqual(shown[1]?.own, shown[0]?.own);
  t.deepEqual(shown[1]?.told, shown[0]?.own);
  await run(() => false, 20);
  t.deepEqual(issuerTold(), shown[0]?.own);
  isBroken = false;
  clock.advance(managerCertificateTimes.retryMs);
  await run(() => issuerTold().equals(shown[1]?.own ?? Buffer.alloc(0)));
  t.deepEqual(issuerTold(), shown[1]?.own);
});

test("M5: a manager's node reports a certificate once what follows it is ready, and not after a stop", async (t) => {
  const { env, run, store, held, hold, update } = await rootWorld(t);
  const reported = () => store.get("node", "manager1")?.description?.tlsInfo?.certIssuerPublicKey ?? new Uint8Array();
  const uses: PromiseWithResolvers<void>[] = [];
  const keeper = startManagerCertificate(env, pki, {
    facts,
    load: held,
    save: hold,
    onClockJump: () => {},
    onCertificate: () => {
      const use = Promise.withResolvers<void>();
      uses.push(use);
      return use.promise;
    },
  });
  t.teardown(() => keeper.stop());
  await run(() => uses.length === 1);
  uses[0]?.resolve();
  const first = reported();
  await update({ forceRotate: 1 });
  await run(() => uses.length === 2);
  await run(() => false, 20);
  t.deepEqual(reported(), first);
  uses[1]?.resolve();
  await run(() => reported() !== first);
  const second = reported();
  t.notDeepEqual(second, first);
  await update({ forceRotate: 2 });
  await run(() => uses.length === 3);
  keeper.stop();
  uses[2]?.resolve();
  await run(() => false, 20);
  t.deepEqual(reported(), second);
});

test("M5: a certificate that the manager's node reports already is used while nothing can be written, and no other", async (t) => {
  const { clock, env, run, seed, store, held, hold } = await rootWorld(t);
  const node = () => store.get("node", "manager1") as Node;
  let isBroken = true;
  const proposer: typeof env.proposer = {
    propose: (request) => (isBroken ? Promise.reject(new Error("the disk is full")) : env.proposer.propose(request)),
  };
  const seen: string[] = [];
  const start = (hostname: string) => {
    const keeper = startManagerCertificate({ ...env, proposer }, pki, {
      facts: { ...facts, hostname },
      load: held,
      save: hold,
      onClockJump: () => {},
      onCertificate: ({ certificatePem }) => void seen.push(certificatePem),
    });
    t.teardown(() => keeper.stop());
    return keeper;
  };
  const working = async (isDone: () => boolean): Promise<void> => {
    await run(() => false, 20);
    isBroken = false;
    clock.advance(managerCertificateTimes.retryMs);
    await run(isDone);
  };
  const first = start("first");
  await run(() => seen.length === 1);
  t.deepEqual(seen, [held().certificatePem]);
  t.not(node().description?.hostname, "first");
  await working(() => node().description?.hostname === "first");
  t.is(node().description?.hostname, "first");
  first.stop();

  isBroken = true;
  seen.length = 0;
  seed("node", Node.patch(node(), { certificate: null }));
  start("second");
  await run(() => seen.length > 0, 50);
  t.deepEqual(seen, [], "it is reported before it is used");
  await working(() => seen.length === 1);
  t.is(node().description?.hostname, "second");
});

test("M4: a manager that starts while a rotation ends is accepted by managers that do not know the new root yet", async (t) => {
  const { cluster, env, held, hold, rotation, run, seed, update } = await rootWorld(t);
  const rootNow = (): string => text.decode(cluster().rootCa?.caCert);
  const first = rootNow();
  rotation();
  const second = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  const unaware = worker("unaware", second);
  const tlsInfo = NodeTLSInfo.patch(unaware.description?.tlsInfo as NodeTLSInfo, { trustRoot: bytes.encode(first) });
  seed("node", Node.patch(unaware, { description: NodeDescription.create({ tlsInfo }) }));
  // Its node reports its renewal, which ends the rotation, and it receives the answer only afterwards.
  const proposer: typeof env.proposer = {
    propose: async (request) => {
      const outcome = await env.proposer.propose(request);
      await run(() => rootNow() === second);
      return outcome;
    },
  };
  const seen: string[] = [];
  const keeper = startManagerCertificate({ ...env, proposer }, pki, {
    facts,
    load: held,
    save: hold,
    onClockJump: () => {},
    onCertificate: ({ certificatePem }) => void seen.push(certificatePem),
  });
  t.teardown(() => keeper.stop());
  await run(() => seen.length === 1);
  t.is(rootNow(), second);
  const read = pki.describeCertificate(seen[0] ?? "", second);
  for (const root of [first, second]) t.true(read.kind === "certificate" && read.verify(root, Date.now()));
});

test("M6: a manager renews its certificate at once when its clock was set outside its validity", async (t) => {
  const { clock, env, run, held, hold } = await rootWorld(t);
  let offMs = 0;
  const set: Clock = {
    now: () => clock.now() + offMs,
    monotonic: () => clock.monotonic(),
    setTimeout: (callback, ms) => clock.setTimeout(callback, ms),
    clearTimeout: (timer) => clock.clearTimeout(timer),
    soon: (callback) => clock.soon(callback),
  };
  const jumped: (() => void)[] = [];
  const seen: { readonly notBeforeMs: number; readonly notAfterMs: number }[] = [];
  const keeper = startManagerCertificate({ ...env, clock: set }, pki, {
    facts,
    load: held,
    save: hold,
    onClockJump: (listener) => void jumped.push(listener),
    onCertificate: ({ certificatePem }) => {
      const read = pki.describeCertificate(certificatePem);
      if (read.kind === "certificate") seen.push(read);
    },
  });
  t.teardown(() => keeper.stop());
  await run(() => seen.length === 1);
  for (const ms of [200 * 86_400_000, -4 * 3_600_000, 0]) {
    offMs = ms;
    const count = seen.length;
    for (const listener of jumped) listener();
    await run(() => seen.length > count);
    const last = seen.at(-1);
    t.true(last !== undefined && last.notBeforeMs <= set.now() && set.now() < last.notAfterMs, String(ms));
  }
});

test("changes during a failed renewal are handled right after it, too", (t) => {
  const run = new ChartRun(managerCertificateMachine);
  run.send({ type: "certificate.doubted" }, { type: "certificate.failed", reason: "old" });
  t.is(run.state, "obtaining");
  t.true(run.names.includes("obtainCertificate"));
  t.is(run.send({ type: "certificate.failed", reason: "no leader" }).state, "retrying");
});
