// K1, P10: after any sequential or concurrent writes, each resource is of a registered kind.
import test from "ava";
import fc from "fast-check";
import {
  Annotations,
  CreateExtensionRequest,
  CreateResourceRequest,
  RemoveExtensionRequest,
  RemoveResourceRequest,
  UpdateResourceRequest,
} from "../../proto/gen/messages.ts";
import { world } from "../support/control.ts";
import { call, refusalOf } from "../support/manager.ts";

const kinds = ["colour", "shape", "Shape"] as const;
const names = ["a", "b", "c"] as const;
const operation = fc.record({
  act: fc.constantFrom("register", "unregister", "make", "change", "remove"),
  kind: fc.constantFrom(...kinds),
  name: fc.constantFrom(...names),
});
type Operation = typeof operation extends fc.Arbitrary<infer Value> ? Value : never;

function actor() {
  const { control, store } = world();
  const act = ({ act: what, kind, name }: Operation): Promise<unknown> => {
    const resource = store.byName("resource", name);
    const version = resource?.meta?.version ?? null;
    switch (what) {
      case "register":
        return control.CreateExtension(
          CreateExtensionRequest.create({ annotations: Annotations.create({ name: kind }) }),
          call(),
        ) as Promise<unknown>;
      case "unregister": {
        const extensionId = store.byName("extension", kind)?.id ?? "none";
        return control.RemoveExtension(RemoveExtensionRequest.create({ extensionId }), call()) as Promise<unknown>;
      }
      case "make": {
        const annotations = Annotations.create({ name });
        return control.CreateResource(CreateResourceRequest.create({ annotations, kind }), call()) as Promise<unknown>;
      }
      case "change": {
        const request = UpdateResourceRequest.create({ resourceId: resource?.id ?? "none", resourceVersion: version });
        return control.UpdateResource(request, call()) as Promise<unknown>;
      }
      case "remove": {
        const request = RemoveResourceRequest.create({ resourceId: resource?.id ?? "none" });
        return control.RemoveResource(request, call()) as Promise<unknown>;
      }
    }
  };
  const unregistered = (): readonly string[] =>
    [...store.all("resource")].filter(({ kind }) => store.byName("extension", kind) === undefined).map(({ id }) => id);
  return { act, store, unregistered };
}

test("K1: after any operations, one after the other", async (t) => {
  let made = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { maxLength: 20 }), async (operations) => {
      const { act, store, unregistered } = actor();
      for (const each of operations) {
        await refusalOf(() => act(each));
        made += store.count("resource");
        t.deepEqual(unregistered(), []);
      }
    }),
    { numRuns: 60 },
  );
  t.true(made > 0);
});

test("P10: after any operations that were all decided before one of them was written", async (t) => {
  let raced = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(operation, { maxLength: 10 }),
      fc.array(operation, { minLength: 2, maxLength: 6 }),
      async (before, atOnce) => {
        const { act, unregistered } = actor();
        await refusalOf(() => act({ act: "register", kind: "colour", name: "a" }));
        for (const each of before) await refusalOf(() => act(each));
        const refusals = await Promise.all(atOnce.map((each) => refusalOf(() => act(each))));
        if (refusals.some((refusal) => /is not registered|in use by/.test(refusal?.message ?? ""))) raced += 1;
        t.deepEqual(unregistered(), []);
      },
    ),
    { numRuns: 150 },
  );
  t.true(raced > 0);
});
