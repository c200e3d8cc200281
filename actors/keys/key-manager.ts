/** The leader's rotation of the network keys: hosts the chart, writes the cluster object. */
import {
  areKeysWhole,
  keyRotationMachine,
  networkKeyBytes,
  withRotatedKeys,
} from "../../machines/keys/key-rotation.machine.ts";
import { transact, replacement } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";

export function startKeyManager(env: Environment): Running {
  const random = env.random.fork("key-manager");
  let stopped = false;
  const hosted = env.host.start(
    keyRotationMachine,
    "key-rotation",
    { isWhole: [...env.store.all("cluster")].every(areKeysWhole) },
    {
      effects: {
        rotateKeys: () => void rotate(),
      },
    },
  );

  async function rotate(): Promise<void> {
    try {
      await transact(env, { traceparent: "" }, () => {
        const key = (): Uint8Array => random.bytes(networkKeyBytes);
        return [...env.store.all("cluster")].map((cluster) => replacement("cluster", withRotatedKeys(cluster, key)));
      });
      if (!stopped) hosted.send({ type: "keys.rotated" });
    } catch (error) {
      if (!stopped) hosted.send({ type: "rotation.failed", reason: sentence(error) });
    }
  }

  return {
    stop() {
      stopped = true;
      hosted.stop();
    },
  };
}
