// The Docker Engine of a newer Debian (.ci/newer-engine) instead of this machine's: it joins and runs services, wrong requests and its Go
// client get equal answers at its own manager and at ours, and stacks are the same whichever client deploys them.
import { join } from "node:path";
import test from "ava";

const folder = process.env["MUSTER_TEST_NEWER_ENGINE"];

if (folder === undefined)
  test.skip("a newer engine: needs MUSTER_TEST_NEWER_ENGINE, a folder that .ci/newer-engine has filled", () => {});
else {
  // Each file has a process of its own, so this is for the tests below only.
  process.env["PATH"] = [join(folder, "usr/bin"), join(folder, "usr/sbin"), process.env["PATH"]].join(":");
  await import("./engine.test.ts");
  await import("./docker-api.test.ts");
  await import("./docker-words.test.ts");
  await import("./docker-filters.test.ts");
  await import("./docker-go.test.ts");
  await import("./stack.test.ts");
}
