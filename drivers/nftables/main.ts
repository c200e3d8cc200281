/** The executable of the nftables dataplane driver, which Muster's agent or a stock Felix starts. */
import { DriverPipes } from "../../edges/dataplane/driver-pipes.ts";
import { Driver } from "./driver.ts";
import { NftKernel } from "./kernel.ts";

/** Main waits no longer than this for a driver to exit, in milliseconds. */
const endMsMax = 2_000;

function log(text: string): void {
  process.stderr.write(`${new Date().toISOString()} muster-dataplane-nft: ${text}\n`);
}

/** The rules stay in the kernel, for the next driver. */
function end(reason: string): void {
  log(`exiting: ${reason}`);
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
    "muster-dataplane-nft is a dataplane driver: Felix or a Muster agent starts it, with pipes as descriptors 3 and 4\n",
  );
  process.exit(2);
}
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => end(signal));
