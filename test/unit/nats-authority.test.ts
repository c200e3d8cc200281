// The CA of the managers' own NATS, replaced by leaders that come and go.
import test from "ava";
import fc from "fast-check";
import { isNewerList, startNatsAuthority, type NatsAuthorityPorts } from "../../actors/keys/nats-authority.ts";
import { natsAuthorityStep, type NatsAuthoritySituation } from "../../machines/keys/nats-authority.machine.ts";
import { isSameMessage } from "../../machines/same-message.ts";
import {
  CAConfig,
  Cluster,
  ClusterSpec,
  Manager,
  NatsAuthorities,
  NatsAuthority,
  Node,
} from "../../proto/gen/messages.ts";
import { testManager } from "../support/manager.ts";

const resting: NatsAuthoritySituation = {
  revision: 3,
  trusted: ["x"],
  issuer: "x",
  holders: ["a", "b", "c"],
  forced: 1,
  wantedForced: 1,
  nodes: ["a", "b", "c"],
  managers: ["a", "b", "c"].map((id) => ({ id, alive: true, usesRevision: true })),
  isCopyMissing: false,
  heldMs: 0,
};
const away = (id: string) => (each: NatsAuthoritySituation["managers"][number]) =>
  each.id === id ? { ...each, alive: false, usesRevision: false } : each;

test("a CA is replaced when a manager that has had its key is removed, or the operator rotates the root", (t) => {
  t.deepEqual(natsAuthorityStep(resting), { kind: "rest", away: [] });
  const demoted = { ...resting, managers: resting.managers.filter(({ id }) => id !== "c") };
  t.deepEqual(natsAuthorityStep(demoted), { kind: "rest", away: [] }, "a demoted manager may be promoted again");
  t.deepEqual(natsAuthorityStep({ ...demoted, nodes: ["a", "b"] }), { kind: "make" });
  t.deepEqual(natsAuthorityStep({ ...resting, wantedForced: 2 }), { kind: "make" });
  t.deepEqual(
    natsAuthorityStep({ ...resting, revision: 0, holders: [], forced: 0 }),
    { kind: "record" },
    "rotations before the first list are not repeated",
  );
});

test("C1: each step waits for every live manager, and for none that is away", (t) => {
  const both = { ...resting, trusted: ["x", "y"] };
  t.deepEqual(natsAuthorityStep(both), { kind: "issue" });
  t.deepEqual(natsAuthorityStep({ ...both, issuer: "y" }), { kind: "narrow" });
  const behind = both.managers.map((each) => (each.id === "b" ? { ...each, usesRevision: false } : each));
  t.deepEqual(natsAuthorityStep({ ...both, managers: behind }), { kind: "spread", waitingFor: ["b"] });
  t.deepEqual(natsAuthorityStep({ ...both, managers: both.managers.map(away("b")) }), { kind: "issue" });
  t.deepEqual(natsAuthorityStep({ ...resting, managers: resting.managers.map(away("b")) }), {
    kind: "rest",
    away: ["b"],
  });
});

test("C5: only the last step waits for a missing copy of the log, for a minute at most", (t) => {
  const missing = { ...resting, isCopyMissing: true };
  const both = { ...missing, trusted: ["x", "y"] };
  t.deepEqual(natsAuthorityStep({ ...missing, wantedForced: 2 }), { kind: "make" });
  t.deepEqual(natsAuthorityStep(both), { kind: "issue" });
  t.deepEqual(natsAuthorityStep({ ...both, issuer: "y" }), { kind: "hold" });
  t.deepEqual(natsAuthorityStep({ ...both, issuer: "y", heldMs: 59_999 }), { kind: "hold" });
  t.deepEqual(natsAuthorityStep({ ...both, issuer: "y", heldMs: 60_000 }), { kind: "narrow" });
  t.deepEqual(natsAuthorityStep({ ...both, issuer: "y", isCopyMissing: false }), { kind: "narrow" });
});

test("of two different lists, exactly one is newer", (t) => {
  const lists = [
    NatsAuthorities.create({ revision: 2, issuer: "x" }),
    NatsAuthorities.create({ revision: 3, issuer: "x" }),
    NatsAuthorities.create({ revision: 3, issuer: "x", holders: ["a"] }),
    NatsAuthorities.create({ revision: 3, issuer: "y" }),
  ];
  for (const one of lists)
    for (const other of lists) {
      if (one === other) t.false(isNewerList(one, other));
      else t.not(isNewerList(one, other), isNewerList(other, one));
    }
});

const ids = ["a", "b", "c"] as const;
type Id = (typeof ids)[number];
type Move =
  /** A manager that believes to lead takes its next step: tells one manager, or changes its own list. */
  | { readonly kind: "lead"; readonly at: Id; readonly whom: Id }
  /** The process is killed: what it knew of the others is gone, its key file stays. */
  | { readonly kind: "kill"; readonly at: Id }
  /** It starts, and learns from another one first. */
  | { readonly kind: "start"; readonly at: Id; readonly from: Id }
  | { readonly kind: "rotate" };

const idArb = fc.constantFrom(...ids);
const moveArb: fc.Arbitrary<Move> = fc.oneof(
  { weight: 12, arbitrary: fc.record({ kind: fc.constant("lead" as const), at: idArb, whom: idArb }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("kill" as const), at: idArb }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("start" as const), at: idArb, from: idArb }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("rotate" as const) }) },
);

/** Managers with key files, any of which may believe to lead, as after a loss of the lease. */
class World {
  readonly lists = new Map<Id, NatsAuthorities>();
  readonly up = new Set<Id>(ids);
  readonly used = new Map<Id, Map<Id, NatsAuthorities>>();
  wanted = 0;
  made = 0;

  constructor() {
    const first = NatsAuthority.create({ id: "ca0" });
    for (const id of ids) this.lists.set(id, NatsAuthorities.create({ authorities: [first], issuer: first.id }));
  }

  list(id: Id): NatsAuthorities {
    return this.lists.get(id) as NatsAuthorities;
  }

  take(id: Id, list: NatsAuthorities): void {
    if (isNewerList(this.list(id), list)) this.lists.set(id, list);
  }

  step(at: Id) {
    const list = this.list(at);
    const used = this.used.get(at);
    const uses = (id: Id): boolean => {
      const found = used?.get(id);
      return id === at || (found !== undefined && isSameMessage(found, list));
    };
    return natsAuthorityStep({
      revision: list.revision,
      trusted: list.authorities.map(({ id }) => id),
      issuer: list.issuer,
      holders: list.holders,
      forced: list.forced,
      wantedForced: this.wanted,
      nodes: ids,
      managers: ids.map((id) => ({ id, alive: this.up.has(id), usesRevision: uses(id) })),
      isCopyMissing: false,
      heldMs: 0,
    });
  }

  lead(at: Id, whom: Id): void {
    if (!this.up.has(at)) return;
    const list = this.list(at);
    const change = (fields: Partial<NatsAuthorities>): void =>
      this.take(at, NatsAuthorities.patch(list, { ...fields, revision: list.revision + 1 }));
    const newest = list.authorities.at(-1) as NatsAuthority;
    const step = this.step(at);
    switch (step.kind) {
      case "rest":
      case "hold":
        return;
      case "spread": {
        if (whom === at || !this.up.has(whom)) return;
        this.take(whom, list);
        const used = this.used.get(at) ?? new Map<Id, NatsAuthorities>();
        this.used.set(at, used.set(whom, this.list(whom)));
        return this.take(at, this.list(whom));
      }
      case "record":
        return change({ holders: [...ids], ...(list.revision === 0 ? { forced: this.wanted } : {}) });
      case "make": {
        this.made += 1;
        const made = NatsAuthority.create({ id: `ca${this.made}` });
        return change({ authorities: [newest, made], holders: [...ids], forced: this.wanted });
      }
      case "issue":
        return change({ issuer: newest.id });
      case "narrow":
        return change({ authorities: [newest] });
    }
  }

  make(move: Move): void {
    switch (move.kind) {
      case "lead":
        return this.lead(move.at, move.whom);
      case "kill":
        this.up.delete(move.at);
        this.used.delete(move.at);
        for (const used of this.used.values()) used.delete(move.at);
        return;
      case "start": {
        const others = ids.filter((id) => id !== move.at && this.up.has(id));
        const from = others.includes(move.from) ? move.from : others[0];
        if (from !== undefined) this.take(move.at, this.list(from));
        this.up.add(move.at);
        return;
      }
      case "rotate":
        this.wanted += 1;
    }
  }

  /** Pairs of running managers of which one does not trust the other's certificate. */
  distrusts(): readonly string[] {
    const up = [...this.up];
    return up.flatMap((one) =>
      up
        .filter((other) => !this.list(one).authorities.some(({ id }) => id === this.list(other).issuer))
        .map((other) => `${one} does not trust ${other}`),
    );
  }
}

test("C1, C3: with one leader at a time, which may be killed at any moment, running managers trust each other", (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(fc.array(moveArb, { maxLength: 120 }), (moves) => {
        const world = new World();
        let leader: Id = "a";
        for (const move of moves) {
          if (!world.up.has(leader)) {
            leader = ids.find((id) => world.up.has(id)) ?? "a";
            world.used.delete(leader);
          }
          world.make(move.kind === "lead" ? { ...move, at: leader } : move);
          const distrusts = world.distrusts();
          if (distrusts.length > 0) throw new Error(distrusts.join());
        }
      }),
      { numRuns: 500 },
    ),
  );
});

test("C2, C3: even several leaders at once end with one CA everywhere, newer than every wish to rotate", (t) => {
  t.notThrows(() =>
    fc.assert(
      fc.property(fc.array(moveArb, { maxLength: 120 }), (moves) => {
        const world = new World();
        // Every manager has a list with a revision.
        const settle = (): void => {
          for (const id of ids) world.make({ kind: "start", at: id, from: "a" });
          for (let round = 0; round < 60; round += 1) for (const whom of ids) world.lead("a", whom);
        };
        settle();
        for (const move of moves) world.make(move);
        settle();
        const [first] = ids.map((id) => world.list(id));
        for (const id of ids)
          if (!isSameMessage(world.list(id), first as NatsAuthorities)) throw new Error(`${id} differs`);
        if (first?.authorities.length !== 1) throw new Error("two CAs are trusted");
        if (first.forced !== world.wanted) throw new Error("a rotation is missing");
      }),
      { numRuns: 300 },
    ),
  );
});

test("the leader replaces the CA for a removed manager and a rotation, and tells a manager that was away later", async (t) => {
  const { clock, drop, env, seed } = testManager("m1");
  const run = (ms: number) => clock.run({ untilMs: clock.now() + ms });
  const cluster = (forceRotate: number): Cluster =>
    Cluster.create({ id: "c1", spec: ClusterSpec.create({ caConfig: CAConfig.create({ forceRotate }) }) });
  const first = NatsAuthority.create({ id: "ca0" });
  const begun = NatsAuthorities.create({ authorities: [first], issuer: first.id });
  const lists = new Map(["m1", "m2", "m3"].map((id) => [id, begun]));
  const listOf = (id: string): NatsAuthorities => lists.get(id) ?? begun;
  const silent = new Set<string>();
  let made = 0;
  const take = (id: string, list: NatsAuthorities): void => {
    if (isNewerList(listOf(id), list)) lists.set(id, list);
  };
  seed("cluster", cluster(3));
  seed("node", ...["m1", "m2", "m3"].map((id) => Node.create({ id })));
  const managers = ["m1", "m2", "m3"].map((id) => Manager.create({ id, addr: id, alive: true }));
  seed("manager", ...managers);
  let isCopyMissing = false;
  const ports: NatsAuthorityPorts = {
    list: () => listOf("m1"),
    use: async (list) => take("m1", list),
    make: async () => {
      made += 1;
      return NatsAuthority.create({ id: `ca${made}` });
    },
    tell: async (address, list) => {
      if (silent.has(address)) throw new Error("no answer");
      take(address, list);
      return listOf(address);
    },
  };
  const rotation = startNatsAuthority(env, ports, () => isCopyMissing);
  t.teardown(() => rotation.stop());
  const trusted = (id: string): readonly string[] => listOf(id).authorities.map((authority) => authority.id);
  await run(100);
  t.like(listOf("m2"), { revision: 1, holders: ["m1", "m2", "m3"], forced: 3 });
  t.is(made, 0);

  silent.add("m2");
  seed("cluster", cluster(4));
  await run(20_000);
  t.deepEqual(trusted("m1"), ["ca0", "ca1"], "a live manager does not answer");
  t.is(listOf("m1").issuer, "ca0");
  seed("manager", Manager.create({ id: "m2", addr: "m2", alive: false }));
  await run(20_000);
  t.deepEqual(trusted("m1"), ["ca1"], "it counts as dead");
  t.deepEqual(listOf("m3"), listOf("m1"));
  t.deepEqual(trusted("m2"), ["ca0"]);
  silent.clear();
  await run(61_000);
  t.deepEqual(listOf("m2"), listOf("m1"), "it can be reached again, though it still counts as dead");

  drop("manager", "m3");
  await run(1_000);
  t.deepEqual(trusted("m1"), ["ca1"], "a demoted manager is still a node");
  drop("node", "m3");
  await run(1_000);
  t.deepEqual(trusted("m1"), ["ca2"]);
  await run(61_000);
  t.deepEqual(trusted("m2"), ["ca2"]);
  t.deepEqual(listOf("m1").holders, ["m1", "m2"]);
  t.deepEqual(trusted("m3"), ["ca1"], "it gets no list");

  // C5
  isCopyMissing = true;
  seed("cluster", cluster(5));
  await run(30_000);
  t.deepEqual(trusted("m1"), ["ca2", "ca3"], "a copy of the log is missing");
  isCopyMissing = false;
  await run(5_000);
  t.deepEqual(trusted("m1"), ["ca3"]);
  isCopyMissing = true;
  seed("cluster", cluster(6));
  await run(55_000);
  t.deepEqual(trusted("m1"), ["ca3", "ca4"], "the wait has begun anew");
  await run(10_000);
  t.deepEqual(trusted("m1"), ["ca4"], "a former CA is not trusted for ever");
});
