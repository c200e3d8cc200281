// Keys: of the log, of managers' disks, and of overlay networks.
import test from "ava";
import { dataKeyMachine, keyStep, type KeySituation, type KeyStep } from "../../machines/keys/data-key.machine.ts";
import { keyFetchMachine } from "../../machines/keys/key-fetch.machine.ts";
import {
  areKeysWhole,
  keyRotationMachine,
  keySubsystems,
  withRotatedKeys,
} from "../../machines/keys/key-rotation.machine.ts";
import {
  natsAuthorityMachine,
  natsAuthorityStep,
  type NatsAuthoritySituation,
  type NatsAuthorityStep,
} from "../../machines/keys/nats-authority.machine.ts";
import { managerLockMachine } from "../../machines/keys/manager-lock.machine.ts";
import { Cluster } from "../../proto/gen/messages.ts";
import { isAsked, isDue, isIn, paramsOf, walkChart } from "../support/chart-model.ts";

test("a data key is used only as the step says that every live manager has it", async (t) => {
  const steps: readonly KeyStep[] = [
    { kind: "rest" },
    { kind: "make" },
    { kind: "spread", keyId: "k2", waitingFor: ["m2"] },
    { kind: "use", keyId: "k2" },
  ];
  const key = { id: "k2", generation: 2, lock: "u2" };
  const lacking: KeySituation = {
    newest: key,
    currentId: "k1",
    clusterLock: "u2",
    ownLock: "u2",
    managers: [
      { id: "m1", keyIds: ["k1", "k2"] },
      { id: "m2", keyIds: ["k1"] },
    ],
  };
  await walkChart(t, {
    machine: dataKeyMachine,
    inputs: [undefined],
    events: [
      ...steps.map((step) => ({ type: "keys.seen" as const, step })),
      { type: "key.made" as const },
      { type: "key.failed" as const, reason: "disk full" },
    ],
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const used = paramsOf<{ keyId: string }>(asked, "useKey");
      const wanted = event !== null && "step" in event && event.step.kind === "use" ? event.step.keyId : null;
      claim(
        "J1",
        used.every(({ keyId }) => keyId === wanted),
        "a key is used that no step names",
      );
      claim("J1", keyStep(lacking).kind === "spread", "a key that a manager lacks is used");
      claim("J1", !isIn(from, "making") || used.length === 0, "a key is used before it is saved");
      // A new leader's actor begins at rest, and the step that it sees leads anywhere.
      const [first = null] = from?.events.length === 0 && event !== null && "step" in event ? [event.step.kind] : [];
      const place = { rest: "resting", make: "making", spread: "spreading", use: "resting" };
      claim("J2", first === null || isIn(step, place[first]), "a new leader does not go on where the last one was");
      claim("J2", !isDue(event, "retryDelay") || isAsked(asked, "look"), "a failed key is never generated again");
      return null;
    },
  });
});

test("a process that other managers refuse again and again gives up, and one that merely waits does not", async (t) => {
  await walkChart(t, {
    machine: keyFetchMachine,
    inputs: [undefined],
    events: [
      { type: "keys.read", lacking: [] },
      { type: "keys.read", lacking: ["k2"] },
      { type: "round.ended", reason: "refused", isDenied: true },
      { type: "round.ended", reason: "no manager answers", isDenied: false },
    ],
    matters: ({ denials, lacking }: { readonly denials: number; readonly lacking: readonly string[] }) => [
      Math.min(denials, 10),
      lacking,
    ],
    memory: { denials: 0 },
    check: ({ denials }, step, claim) => {
      const { asked, event, from } = step;
      const isRound = isIn(from, "asking") && event !== null && "isDenied" in event;
      const now = isRound ? (event.isDenied ? denials + 1 : 0) : denials;
      claim("Y1", isAsked(asked, "giveUp") === (isRound && now >= 10), "it gives up too early, or never");
      return { denials: Math.min(now, 10) };
    },
  });
});

test("network keys are rotated once per period, and a failed rotation is tried again", async (t) => {
  let made = 0;
  const rotated = withRotatedKeys(Cluster.create({}), () => Uint8Array.of((made += 1)));
  const again = withRotatedKeys(rotated, () => Uint8Array.of((made += 1)));
  const timesOf = ({ networkBootstrapKeys: keys }: Cluster, subsystem: string) =>
    keys.filter((key) => key.subsystem === subsystem).map(({ lamportTime }) => lamportTime);
  await walkChart(t, {
    machine: keyRotationMachine,
    inputs: [{ isWhole: true }, { isWhole: false }],
    events: [{ type: "keys.rotated" }, { type: "rotation.failed", reason: "no leader" }],
    memory: null,
    check: (_, step, claim) => {
      const { asked, context, event, from } = step;
      const isMissing = from === null && !(context as { readonly isWhole: boolean }).isWhole;
      const isTime = isMissing || isDue(event, "rotationPeriod") || isDue(event, "retryDelay");
      claim("K1", isAsked(asked, "rotateKeys") === isTime, "keys are missing, or rotated at the wrong time");
      claim("K1", areKeysWhole(rotated) && areKeysWhole(again), "a subsystem has too few or too many keys");
      for (const subsystem of keySubsystems) {
        const [older, newer] = [timesOf(rotated, subsystem), timesOf(again, subsystem)];
        claim("K2", Math.max(...newer) > Math.max(...older), "the new key is not the newest");
        claim("K2", older.filter((time) => newer.includes(time)).length === 2, "more than the oldest key is replaced");
      }
      return null;
    },
  });
});

test("a locked manager opens only with its key, and its file is closed only some time after a key was handed out", async (t) => {
  await walkChart(t, {
    machine: managerLockMachine,
    inputs: [undefined],
    events: [
      { type: "file.opened" },
      { type: "file.locked" },
      { type: "file.broken", reason: "truncated" },
      { type: "unlock.requested" },
      { type: "unlock.refused" },
      { type: "lock.read", state: "right" },
      { type: "lock.read", state: "wrong" },
      { type: "lock.read", state: "unread" },
      { type: "relock.done" },
      { type: "relock.failed", reason: "disk full" },
    ],
    matters: ({ wrongKeys }: { readonly wrongKeys: number }) => Math.min(wrongKeys, 1),
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const opens = isAsked(asked, "announceOpen");
      claim(
        "U1",
        opens === (event?.type === "file.opened" && (isIn(from, "opening") || isIn(from, "unlocking"))),
        "a locked manager runs",
      );
      claim("U1", !isIn(step, "locked") || !isAsked(asked, "look"), "a locked manager does something");
      const isWrong = event?.type === "unlock.refused" && isIn(from, "unlocking");
      claim("U2", !isWrong || isIn(step, "locked"), "a wrong key opens the file");
      claim(
        "U4",
        isAsked(asked, "relock") === isDue(event, "closeDelay"),
        "the file is closed with a key that nobody may have",
      );
      const isUnread = event !== null && "state" in event && event.state === "unread";
      claim(
        "U4",
        !(isUnread && isIn(from, "open.closing")) || isIn(step, "open.unread"),
        "a key that was not handed out closes it",
      );
      const hasFailed = event?.type === "relock.failed" && isIn(from, "open.relocking");
      claim("U3", !hasFailed || isIn(step, "open.retrying"), "a failed write counts as done");
      return null;
    },
  });
});

test("the list of NATS's CAs changes only as the step says, and whatever fails is tried again", async (t) => {
  const steps: readonly NatsAuthorityStep[] = [
    { kind: "rest", away: [] },
    { kind: "rest", away: ["m3"] },
    { kind: "spread", waitingFor: ["m2"] },
    { kind: "record" },
    { kind: "make" },
    { kind: "issue" },
    { kind: "hold" },
    { kind: "narrow" },
  ];
  const situation: NatsAuthoritySituation = {
    revision: 4,
    trusted: ["x", "y"],
    issuer: "x",
    holders: ["m1", "m2"],
    forced: 0,
    wantedForced: 0,
    nodes: ["m1", "m2"],
    managers: [
      { id: "m1", alive: true, usesRevision: true },
      { id: "m2", alive: true, usesRevision: false },
    ],
    isCopyMissing: false,
    heldMs: 0,
  };
  await walkChart(t, {
    machine: natsAuthorityMachine,
    inputs: [undefined],
    elsewhere: { C2: "connections are the nats-server's: test/cluster/own-nats.test.ts" },
    events: [
      ...steps.flatMap((step) => [
        { type: "facts.changed" as const, step },
        { type: "list.spread" as const, step },
        { type: "step.taken" as const, step },
      ]),
      { type: "step.failed" as const, reason: "disk full" },
    ],
    memory: null,
    check: (_, step, claim) => {
      const { asked, event, from } = step;
      const changes = paramsOf<{ step: NatsAuthorityStep }>(asked, "change");
      const wanted = event !== null && "step" in event ? event.step.kind : null;
      const changing = ["record", "make", "issue", "narrow"];
      claim(
        "C1",
        changes.every((change) => change.step.kind === wanted && changing.includes(change.step.kind)),
        "the list is changed otherwise than the step says",
      );
      claim(
        "C1",
        changes.length === 0 || !isIn(from, "retrying"),
        "the list is changed after a failure, without a look",
      );
      claim("C1", natsAuthorityStep(situation).kind === "spread", "a change is not used by every live manager");
      claim("C3", from !== null || isAsked(asked, "spread"), "a new leader does not ask the others first");
      claim("C3", !isDue(event, "retryDelay") || isAsked(asked, "spread"), "a failed step is never tried again");
      claim(
        "C4",
        !isDue(event, "awayDelay") || isAsked(asked, "spread"),
        "a manager that is away is never tried again",
      );
      claim("C5", !isIn(step, "holding") || changes.length === 0, "a held step is taken");
      claim("C5", !isDue(event, "holdDelay") || isAsked(asked, "spread"), "a held step is never tried again");
      return null;
    },
  });
});
