/**
 * The seed of every property test. It is fixed by default: what passed here passes on the next machine too, so that new failing
 * cases are found by whoever searches for them (`MUSTER_TEST_SEED=random npm test`, or a number to reproduce a failure) and not
 * by whoever happens to build. Every test process loads this file first (package.json, "ava").
 */
import { configureGlobal, readConfigureGlobal } from "fast-check";

/** Arbitrary. */
const fixedSeed = 20_261_121;

const asked = process.env["MUSTER_TEST_SEED"] ?? String(fixedSeed);
if (asked !== "random") {
  const seed = Number(asked);
  if (!Number.isInteger(seed)) throw new Error(`MUSTER_TEST_SEED is "random" or a whole number, not "${asked}"`);
  configureGlobal({ ...readConfigureGlobal(), seed });
}
