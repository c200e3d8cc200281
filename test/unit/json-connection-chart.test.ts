import test from "ava";
import fc from "fast-check";
import { initialTransition, transition } from "xstate";
import { jsonConnectionMachine, type JsonConnectionEvent } from "../../machines/json/connection.machine.ts";
import { addressesMax, attemptsPerMinute, LoginRate, refusalsPerMinute } from "../../machines/json/login-rate.ts";

const events: readonly JsonConnectionEvent[] = [
  { type: "socket.opened" },
  { type: "socket.closed" },
  { type: "login.requested", key: 1 },
  { type: "login.accepted", key: 1, tag: "user-ada" },
  { type: "login.refused", key: 1 },
  { type: "request.received", key: 2 },
  { type: "message.broken", reason: "not JSON" },
  { type: "identity.gone" },
  { type: "peer.responded" },
  { type: "output.stuck" },
  { type: "output.moved" },
  { type: "output.empty" },
  { type: "output.overflowed" },
  { type: "server.stopping" },
];

test("JC1, JC3: a client is let in only if its login is accepted while it is checked, and leftovers are released once", (t) => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...events), { maxLength: 30 }), (history) => {
      let [snapshot] = initialTransition(jsonConnectionMachine);
      let released = 0;
      let checking = false;
      for (const event of history) {
        if (snapshot.status !== "active") break;
        const wasIn = snapshot.hasTag("authenticated");
        const [next, actions] = transition(jsonConnectionMachine, snapshot, event);
        const names = actions.map(({ type }) => type);
        if (names.includes("welcome")) t.true(checking && event.type === "login.accepted");
        if (next.hasTag("authenticated") && !wasIn) t.true(names.includes("welcome"));
        if (event.type === "request.received" && !names.includes("refuseRequest"))
          t.false(next.matches("open"), "a request before the login completes is rejected");
        if (names.includes("checkLogin")) checking = true;
        if (event.type === "login.refused" || event.type === "login.accepted") checking = false;
        released += names.filter((name) => name === "release").length;
        t.true(released <= 1);
        if (!next.matches("handshake") && !next.matches("open")) t.is(released, 1);
        snapshot = next;
      }
    }),
    { numRuns: 1_000 },
  );
});

test("each state of an open connection ends by itself or waits for its peer", (t) => {
  const chart = jsonConnectionMachine.config.states ?? {};
  t.deepEqual(Object.keys(chart), ["handshake", "open", "closing", "unanswered", "ended", "cut", "closed"]);
  for (const name of ["handshake", "closing"] as const) t.true("after" in (chart[name] ?? {}), name);
});

test("LR1: an address has few rejected logins, and many accepted ones, and both budgets refill over time", (t) => {
  const rate = new LoginRate();
  for (let n = 0; n < refusalsPerMinute; n += 1) {
    t.true(rate.admits("a", 0));
    rate.refused("a", 0);
  }
  t.false(rate.admits("a", 0));
  t.true(rate.admits("b", 0), "another address");
  t.true(rate.admits("a", 60_000 / refusalsPerMinute));
  const other = new LoginRate();
  for (let n = 0; n < attemptsPerMinute; n += 1) t.true(other.admits("a", 0));
  t.false(other.admits("a", 0));
  t.true(other.admits("a", 11));
  t.false(other.admits("a", 0));
  t.true(other.admits("a", 11), "a clock that was set back locks nobody out");
});

test("LR2: the number of remembered addresses is limited", (t) => {
  const rate = new LoginRate();
  for (let n = 0; n < addressesMax + 500; n += 1) rate.admits(String(n), n);
  t.is(rate.size, addressesMax);
});
