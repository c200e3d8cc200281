// Equal parts of objects are shared, and those that nothing looks up any more are forgotten.
import test from "ava";
import { Annotations } from "../../proto/gen/messages.ts";
import { SharedMessages, SharedStrings } from "../../runtime/store/sharing.ts";
import { collectionGroups } from "../../runtime/telemetry/collections.ts";

test("parts of services that are gone are forgotten, and those in use stay shared", async (t) => {
  const messages = new SharedMessages(Annotations);
  const strings = new SharedStrings();
  const entries = async (value: string): Promise<number> =>
    (await collectionGroups()).find((group) => group.key === "string" && group.value === value)?.entries ?? 0;
  const before = await entries("string");
  const used = messages.share("used", Annotations.create({ name: "used" }));
  for (let number = 0; number < 3_000; number += 1) {
    messages.share(`service ${number}`, Annotations.create({ name: `service ${number}` }));
    strings.share(`service ${number}`);
  }
  t.is(await entries("{ message, bytes }"), 3_001);
  t.true((await entries("string")) >= before + 3_000);
  for (let number = 0; number < 30_000; number += 1) {
    messages.share("used", Annotations.create({ name: "used" }));
    strings.share(`used ${number % 2}`);
  }
  t.true((await entries("{ message, bytes }")) <= 2, "one in each generation");
  t.true((await entries("string")) < before + 100);
  t.is(messages.share("used", Annotations.create({ name: "used" })), used, "the same object as at first");
  t.is(strings.share("used 1"), "used 1");
});
