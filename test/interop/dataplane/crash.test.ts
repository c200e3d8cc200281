// Our driver dies at each point of its transactions, and under traffic: the resulting kernel state, and what the next driver
// makes of it.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Rule } from "../../../proto/gen/felix.ts";
import { body, deny, type Body } from "../../fixtures/dataplane-main.ts";
import { endpoint, lab, picture, shape, start, tcp, test, udp } from "../../fixtures/dataplane-scene.ts";
import { addresses } from "../../fixtures/packet-lab.ts";
import { until } from "../../fixtures/until.ts";

const members = Array.from({ length: 5_000 }, (_, index) => `10.200.${index >> 8}.${index & 255}`);

test("no packet of an established flow is lost while drivers die and others take over", async (t) => {
  const before = start(t);
  before.send(body.config(), ...picture, body.set("s:large", members), body.inSync);
  await before.settled();
  await lab.a.beginTraffic("v4", addresses.b.v4, 80, 2);
  await lab.a.beginTraffic("v6", addresses.b.v6, 80, 2);
  let last = before;
  for (let round = 0; round < 4; round++) {
    last.child.kill(round % 2 === 0 ? "SIGKILL" : "SIGTERM");
    await last.ended();
    last = start(t);
    // The next driver gets different input each time, and deletes the earlier driver's rules.
    last.send(body.config(), ...picture, body.set(`s:large${round}`, members), body.inSync);
    await last.settled();
    last.send(body.policy("web", { inboundRules: [deny], outboundRules: [deny] }));
    await last.settled();
  }
  for (const name of ["v4", "v6"]) {
    const { lost, sent } = await lab.a.endTraffic(name);
    t.is(lost, 0, `${lost} of ${sent} lost over ${name}`);
    t.true(sent > 20);
  }
});

/** Runs the system's nft, but at one moment (before it starts, while it runs, or after it exits) the driver is killed. */
const crashes = {
  before: "kill -9 $PPID",
  within: "kill -9 $PPID; /usr/sbin/nft -f -",
  after: "/usr/sbin/nft -f -; kill -9 $PPID",
  // nft itself dies too, at an arbitrary point. If it has already exited, nobody is left to read the error of the kill.
  both: "kill -9 $PPID; exec 3<&0; /usr/sbin/nft -f - <&3 & sleep 0.01; kill -9 $! 2>/dev/null; wait",
} as const;

interface Picture {
  readonly packets: string;
  readonly rules: readonly string[];
}

test("a driver killed at any point of any transaction leaves the earlier or the later rules, and the next driver converges", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "muster-nft-test-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const fake = join(folder, "nft");
  const steps: readonly (readonly Body[])[] = [
    [...picture, body.set("s:large", members)],
    [
      body.policy("web", { inboundRules: [Rule.create({ action: "allow", srcIpSetIds: ["s:a"] })] }),
      { ipsetDeltaUpdate: { id: "s:a", addedMembers: [addresses.h.v4], removedMembers: [addresses.a.v4] } as never },
    ],
    [endpoint("b", []), { activePolicyRemove: { id: { tier: "default", name: "web" } } as never }],
  ];
  const seen = async (): Promise<string> =>
    JSON.stringify([await lab.a.probe([tcp, udp]), await lab.h.probe([tcp], 100)]);
  const told = (count: number): readonly Body[] => [body.config(), ...steps.slice(0, count).flat(), body.inSync];
  /** Which probes pass, and the shape of the rules, after each step. */
  const pictures: Picture[] = [];
  const look = async (): Promise<Picture> => ({ packets: await seen(), rules: shape() });
  const clean = start(t);
  clean.send(body.config(), body.inSync);
  await clean.settled();
  pictures.push(await look());
  for (const step of steps) {
    clean.send(...step);
    await clean.settled();
    await clean.settled();
    pictures.push(await look());
  }
  await clean.end();
  let before = pictures.at(-1) as Picture;
  for (const [point, script] of Object.entries(crashes)) {
    for (const [index, step] of steps.entries()) {
      const wrapper = index === 0 ? 1 : 2;
      // A driver's first transactions are its resync; its nft call before them asks for the version.
      writeFileSync(
        fake,
        `#!/bin/sh\n[ "$1" = -f ] || exec /usr/sbin/nft "$@"\necho >> ${folder}/count\n[ $(wc -l < ${folder}/count) -lt ${wrapper} ] && exec /usr/sbin/nft "$@"\n${script}\necho > ${folder}/done\n`,
        { mode: 0o755 },
      );
      for (const name of ["count", "done"]) rmSync(join(folder, name), { force: true });
      const main = start(t, { MUSTER_NFT: fake });
      if (index === 0) main.send(...told(1));
      else {
        main.send(...told(index));
        await main.told("its resync", () => main.statusOf("a") !== null);
        main.send(...step);
      }
      await main.ended();
      await until("nft to exit", () => existsSync(join(folder, "done")));
      const where = `${point}, transaction ${index}`;
      const after = pictures[index + 1] as Picture;
      const packets = await seen();
      t.true([before.packets, after.packets].includes(packets), `${where}: ${packets}`);
      const next = start(t);
      next.send(...told(index + 1));
      await next.settled();
      await next.settled();
      t.deepEqual(await look(), after, where);
      await next.end();
      before = after;
    }
  }
});
