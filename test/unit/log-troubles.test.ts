// The operator's sentences about the servers of a NATS link.
import test from "ava";
import { createTroubles } from "../../actors/manager/troubles.ts";
import { reportLogTroubles } from "../../processes/log-troubles.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { testTelemetry } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";

test("servers that have stopped following the log are named in a warning until they follow it again", async (t) => {
  const troubles = createTroubles({ clock: new SystemClock(), telemetry: await testTelemetry() });
  let laggards = [{ name: "n1", ms: 12_300 }];
  const link = { unserved: () => null, fullReason: () => null, jetStreamOff: () => null, laggards: () => laggards };
  const reporting = reportLogTroubles(troubles, link, null);
  t.teardown(() => reporting.stop());
  const found = () => troubles.all().find(({ kind }) => kind === Trouble_Kind.SERVER_STUCK);
  const said = (sentence: string) => until(sentence, () => found()?.sentence === sentence);
  await said("nats-server n1 accepts clients but has not followed the log for 12 s: check its disk and restart it");
  t.false(found()?.blocking);
  laggards = [...laggards, { name: "n2", ms: 65_000 }];
  await said(
    "nats-servers n1 and n2 accept clients but have not followed the log for 65 s: check their disks and restart them",
  );
  laggards = [];
  await until("its end", () => found() === undefined);
});
