import test from "ava";
import { placeOfTitle } from "../ava.ts";

const files = ["test/interop/driver/podman.test.ts", "test/interop/podman.test.ts", "test/unit/task.test.ts"];

test("a test's file is found by its title, and the longest path wins", (t) => {
  t.deepEqual(placeOfTitle("driver › podman › starts", files), { file: files[0] as string, name: "starts" });
  t.deepEqual(placeOfTitle("task › a title › with arrows", files), {
    file: files[2] as string,
    name: "a title › with arrows",
  });
});

test("a title that matches no file has no file", (t) => {
  t.is(placeOfTitle("Exited because no new tests completed", files), null);
  t.is(placeOfTitle("taskless › starts", files), null);
});
