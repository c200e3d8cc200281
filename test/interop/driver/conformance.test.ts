// Our host's requirements for any driver plugin, run against each of subjects.ts.
import test from "ava";
import { conformance } from "./conformance.ts";
import { subjects } from "./subjects.ts";

const { found, skipped } = subjects();
for (const reason of skipped) test.skip(`the driver ${reason}`, () => {});
for (const subject of found) conformance(subject);
