/** The executable of the nftables dataplane driver: Muster's agent starts it, or a stock Felix. */
import { DriverPipes } from "../../edges/dataplane/driver-pipes.ts";
import { Driver } from "./driver.ts";
import { NftKernel } from "./kernel.ts";

/** Main waits no longer for a driver to be gone than this, milliseconds. */
const endMsMax = 2_000;

function log(text: string): void {
  process.stderr.write(`${new Date().toISOString()} muster-dataplane-nft: ${text}\n`);
}

/** Rules stay in the kernel: whoever comes next takes them over. */
function end(reason: string): void {
  log(`ends: ${reason}`);
  setTimeout(() => process.exit(1), endMsMax).unref();
  void driver.stop().then(() => process.exit(1));
}

let pipes: DriverPipes;
const driver = new Driver({
  kernel: new NftKernel(process.env["MUSTER_NFT"] ?? null),
  send: (fields, isDroppable) => pipes.send(fields, isDroppable),
  log,
});

try {
  pipes = new DriverPipes({ onMessages: (messages) => driver.take(messages), onEnd: end }, { input: 3, output: 4 });
} catch {
  process.stderr.write(
    "muster-dataplane-nft is a dataplane driver: a main such as Felix or a Muster agent starts it, with pipes as descriptors 3 and 4\n",
  );
  process.exit(2);
}
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => end(signal));
