/**
 * The seed of every property test. One fixed seed by default: what passed here passes on the next machine too, so that a
 * case nobody has seen yet is found by those who look for it (`MUSTER_TEST_SEED=random npm test`, or a number to see a
 * failure again) and not by whoever happens to build. Every test process loads this file first (package.json, "ava").
 */
import { configureGlobal, readConfigureGlobal } from "fast-check";

/** Any number would do. */
const fixedSeed = 20_261_121;

const asked = process.env["MUSTER_TEST_SEED"] ?? String(fixedSeed);
if (asked !== "random") {
  const seed = Number(asked);
  if (!Number.isInteger(seed)) throw new Error(`MUSTER_TEST_SEED is "random" or a whole number, not "${asked}"`);
  configureGlobal({ ...readConfigureGlobal(), seed });
}
