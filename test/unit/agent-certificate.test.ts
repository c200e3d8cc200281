// The certificate chart alone: which failures are retried, which are final, and when a renewal is due.
import test from "ava";
import {
  agentCertificateMachine,
  type AgentCertificateEvent,
  type AgentCertificateInput,
} from "../../machines/agent/certificate.machine.ts";
import { ChartRun } from "../support/chart-run.ts";

type Run = ChartRun<typeof agentCertificateMachine>;

function after(input: AgentCertificateInput, ...happenings: readonly (AgentCertificateEvent | string)[]): Run {
  return new ChartRun(agentCertificateMachine, input).send(...happenings);
}

const joining: AgentCertificateInput = { kind: "joining" };
const holding: AgentCertificateInput = {
  kind: "holding",
  nodeId: "n1",
  role: "swarm-worker",
  at: 1_000,
  renewAt: 5_000,
  expiresAt: 9_000,
};
const installed: AgentCertificateEvent = {
  type: "certificate.installed",
  nodeId: "n1",
  role: "swarm-worker",
  at: 6_000,
  renewAt: 50_000,
  expiresAt: 90_000,
};
const refusedRoot: AgentCertificateEvent = { type: "root.refused", reason: "no answer", definite: false };
const refused: AgentCertificateEvent = { type: "request.refused", reason: "busy", definite: false };
const issued: AgentCertificateEvent = { type: "certificate.issued" };
const accepted: AgentCertificateEvent = { type: "request.accepted", nodeId: "n1" };

test("a join fetches the root, requests, waits and installs before it announces the certificate", (t) => {
  t.deepEqual(after(joining).names, ["fetchRoot"]);
  t.deepEqual(after(joining, { type: "root.fetched" }).names, ["requestCertificate"]);
  t.deepEqual(after(joining, { type: "root.fetched" }, accepted).names, ["pollStatus"]);
  t.deepEqual(after(joining, { type: "root.fetched" }, accepted, issued).names, ["hangUp", "installCertificate"]);
  const done = after(joining, { type: "root.fetched" }, accepted, issued, installed);
  t.deepEqual(done.names, ["announceIdentity"]);
  t.true(done.snapshot.hasTag("identified"));
});

test("a join gives up after five attempts two seconds apart, with the last reason", (t) => {
  const four = Array.from({ length: 4 }, () => [refusedRoot, "joinRetry"]).flat();
  const waiting = after(joining, ...four.slice(0, -1));
  t.is(waiting.snapshot.value, "waiting-for-root");
  t.deepEqual(waiting.delays, [2_000]);
  const over = after(joining, ...four, refusedRoot);
  t.is(over.snapshot.value, "failed");
  t.deepEqual(over.paramsOf("announceFailure"), { reason: "no answer" });
});

test("an error that no retry can fix fails a join at once", (t) => {
  t.is(after(joining, { ...refusedRoot, definite: true } as AgentCertificateEvent).snapshot.value, "failed");
  t.is(
    after(joining, { type: "root.fetched" }, { ...refused, definite: true } as AgentCertificateEvent).snapshot.value,
    "failed",
  );
});

test("a poll past its deadline is repeated at once, and any other failure is retried with increasing delays", (t) => {
  const polling = [{ type: "root.fetched" }, accepted] as const;
  t.deepEqual(after(joining, ...polling, { type: "poll.expired" }).names, ["pollStatus"]);
  const failed: AgentCertificateEvent = { type: "poll.failed", reason: "?" };
  const bounds = [1, 2, 3, 4, 5, 6, 7].map(
    (count) =>
      after(
        joining,
        ...polling,
        ...Array.from({ length: count }, () => [failed, "pollBackoff"])
          .flat()
          .slice(0, -1),
      ).delays[0],
  );
  t.deepEqual(bounds, [2_000, 3_000, 5_000, 9_000, 17_000, 30_000, 30_000]);
});

test("a node with a certificate checks the clock until the renewal is due", (t) => {
  t.deepEqual(after(holding).delays, [4_000]);
  t.deepEqual(after(holding, "clockLook").names, ["readClock"]);
  t.is(after(holding, "clockLook", { type: "clock.read", at: 4_999 }).snapshot.value, "valid");
  t.is(after(holding, "clockLook", { type: "clock.read", at: 5_000 }).snapshot.value, "requesting");
});

test("a renewal that is months away does not depend on a single timer", (t) => {
  t.deepEqual(after({ ...holding, renewAt: 5_000_000_000 }).delays, [600_000]);
});

test("C3: a renewal is attempted five times at once, then ever more slowly, and never abandoned", (t) => {
  const due = ["clockLook", { type: "clock.read", at: 5_000 } as AgentCertificateEvent] as const;
  const four = Array.from({ length: 4 }, () => refused);
  t.deepEqual(after(holding, ...due, ...four).names, ["requestCertificate"]);
  const waiting = after(holding, ...due, ...four, refused);
  t.is(waiting.snapshot.value, "waiting-to-renew");
  t.deepEqual(waiting.delays, [10_000]);
  t.deepEqual(after(holding, ...due, ...four, refused, "renewalBackoff", refused).delays, [15_000]);
  const long = Array.from({ length: 40 }, () => ["renewalBackoff", refused]).flat();
  t.deepEqual(after(holding, ...due, ...four, refused, ...long).delays, [3_600_000]);
  t.is(after(holding, ...due, { ...refused, definite: true } as AgentCertificateEvent).snapshot.value, "requesting");
});

test("a node told to renew does so once, after half a second", (t) => {
  const forced = after(holding, { type: "renewal.forced" });
  t.deepEqual(forced.delays, [500]);
  t.is(after(holding, { type: "renewal.forced" }, { type: "renewal.forced" }).snapshot.value, "forced");
  t.deepEqual(after(holding, { type: "renewal.forced" }, "forcedDelay", { type: "renewal.forced" }).names, []);
});

test("a wanted role is requested until the certificate carries it", (t) => {
  const manager: AgentCertificateEvent = { type: "role.wanted", role: "swarm-manager" };
  t.is(after(holding, { type: "role.wanted", role: "swarm-worker" }).snapshot.value, "valid");
  const forced = after(holding, manager);
  t.is(forced.snapshot.value, "forced");
  t.is(after(holding, manager, "forcedDelay", accepted, issued, installed).snapshot.value, "forced");
  t.is(
    after(holding, manager, "forcedDelay", accepted, issued, {
      ...installed,
      role: "swarm-manager",
    } as AgentCertificateEvent).snapshot.value,
    "valid",
  );
});

test("a role that is wanted while the clock is read is requested right afterwards", (t) => {
  const manager: AgentCertificateEvent = { type: "role.wanted", role: "swarm-manager" };
  t.is(after(holding, "clockLook", manager, { type: "clock.read", at: 4_999 }).snapshot.value, "forced");
});

test("only a node with a certificate considers an offered root", (t) => {
  const offered: AgentCertificateEvent = { type: "root.offered", rootPem: "R2" };
  t.deepEqual(after(holding, offered).names, ["considerRoot"]);
  t.deepEqual(after(joining, offered).names, ["reportUnexpected"]);
});

test("C7: a join whose certificate is not yet valid waits for it as the same node, and never requests another node", (t) => {
  const unusable: AgentCertificateEvent = { type: "certificate.refused", reason: "expired", definite: false };
  const asked = [joining, { type: "root.fetched" }, accepted, issued] as const;
  const refusals = Array.from({ length: 20 }, () => [unusable, "pollBackoff", issued]).flat();
  const waiting = after(...asked, ...refusals, unusable);
  t.is(waiting.snapshot.value, "waiting-to-poll");
  t.is(waiting.snapshot.context.reason, "expired");
  t.deepEqual(waiting.delays, [30_000]);
  t.deepEqual(after(...asked, unusable, "pollBackoff").names, ["pollStatus"]);
  const done = after(...asked, ...refusals, installed);
  t.is(done.snapshot.value, "valid");
  t.is(done.snapshot.context.nodeId, "n1");
});

test("a join whose certificate never chains to the root pinned by its token fails at once with that reason", (t) => {
  const foreign: AgentCertificateEvent = { type: "certificate.refused", reason: "another root", definite: true };
  const failed = after(joining, { type: "root.fetched" }, accepted, issued, foreign);
  t.is(failed.snapshot.value, "failed");
  t.is(failed.snapshot.context.reason, "another root");
  t.is(
    after(holding, { type: "renewal.forced" }, "forcedDelay", accepted, issued, foreign).snapshot.value,
    "waiting-to-renew",
  );
});

test("a join starts over once it is certain that its node was removed, and not because a manager lags", (t) => {
  const unknown: AgentCertificateEvent = { type: "poll.unknown", reason: "not found" };
  const polling = [joining, { type: "root.fetched" }, accepted] as const;
  t.is(after(...polling, unknown).snapshot.value, "waiting-to-poll");
  const gone = after(...polling, unknown, "pollBackoff", unknown, "pollBackoff", unknown);
  t.is(gone.snapshot.value, "waiting-to-request");
  const again = after(...polling, unknown, "pollBackoff", unknown, "pollBackoff", unknown, "joinRetry", refused);
  t.is(again.snapshot.value, "waiting-to-request");
  // A node with a certificate belongs to the cluster until somebody removes it.
  const renewing = [holding, { type: "renewal.forced" }, "forcedDelay", accepted] as const;
  const kept = after(...renewing, unknown, "pollBackoff", unknown, "pollBackoff", unknown);
  t.is(kept.snapshot.value, "waiting-to-poll");
});

test("invalid data on disk fails the start with the reason", (t) => {
  const failed = after({ kind: "failed", reason: "expired" });
  t.is(failed.snapshot.value, "failed");
  t.deepEqual(failed.paramsOf("announceFailure"), { reason: "expired" });
});

test("a node told to renew during a request sends another one after it", (t) => {
  const asked = [{ type: "renewal.forced" }, "forcedDelay"] as const;
  const told = after(
    holding,
    ...asked,
    { type: "renewal.forced" },
    accepted,
    { type: "certificate.issued" },
    installed,
  );
  t.is(told.snapshot.value, "forced");
  t.true(told.names.includes("announceIdentity"));
  const done = after(
    holding,
    ...asked,
    { type: "renewal.forced" },
    accepted,
    { type: "certificate.issued" },
    installed,
    "forcedDelay",
    accepted,
    { type: "certificate.issued" },
    installed,
  );
  t.is(done.snapshot.value, "valid");
});

test("a request overtaken by an older one is repeated, once it is certain that no manager merely lags", (t) => {
  const superseded: AgentCertificateEvent = { type: "poll.superseded", reason: "older" };
  const polling = [{ type: "renewal.forced" }, "forcedDelay", accepted] as const;
  const first = after(holding, ...polling, superseded);
  t.is(first.snapshot.value, "waiting-to-poll");
  const third = after(holding, ...polling, superseded, "pollBackoff", superseded, "pollBackoff", superseded);
  t.is(third.snapshot.value, "waiting-to-renew");
  t.deepEqual(
    after(holding, ...polling, superseded, "pollBackoff", superseded, "pollBackoff", superseded, "renewalBackoff")
      .names,
    ["requestCertificate"],
  );
});
