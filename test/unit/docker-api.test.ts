// Docker's Engine API: what it reads, and what it says about what it cannot read.
import { once } from "node:events";
import { createServer, get, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import test from "ava";
import { isOlder } from "../../edges/docker/api-version.ts";
import { knownTo, serviceBody } from "../../edges/docker/bodies/service.ts";
import { secretBody } from "../../edges/docker/bodies/content.ts";
import { Failure, failureOf } from "../../edges/docker/failure.ts";
import { parseFilters } from "../../edges/docker/filters.ts";
import { parseJson } from "../../edges/docker/go-json.ts";
import { isSet, timeBefore, timestampOf, versionOf } from "../../edges/docker/go-text.ts";
import { sizeOf } from "../../edges/docker/objects/execs.ts";
import { demandIPv4, versionedNetwork } from "../../edges/docker/objects/networks.ts";
import { usageObject, usageTypesOf } from "../../edges/docker/objects/system.ts";
import { writeList, type DockerRequest } from "../../edges/docker/request.ts";
import { check, type Json } from "../../edges/docker/shape.ts";
import { partOnce, textOf, writtenOnce } from "../../edges/docker/written.ts";
import { unlessEmpty } from "../../lib/docker-objects/values.ts";
import { Mount_Type, Network, RestartPolicy_RestartCondition } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";

function messageOf(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    if (error instanceof Failure) return error.message;
    throw error;
  }
  return "";
}

test("a text after the first value is ignored, like Go's decoder does", (t) => {
  t.deepEqual(parseJson('{"a":[1,2.5e-3,"\\u00e9",true,null]} rest'), { a: [1, 0.0025, "é", true, null] });
  t.deepEqual(parseJson("3]"), 3);
});

test("a mistake in a text is described in Go's words", (t) => {
  const mistakes: readonly (readonly [string, string])[] = [
    ["{", "unexpected EOF"],
    ["{]", "invalid character ']' looking for beginning of object key string"],
    ["[1,]", "invalid character ']' looking for beginning of value"],
    ['{"a" 1}', "invalid character '1' after object key"],
    ['{"a":1 2}', "invalid character '2' after object key:value pair"],
    ["[1 2]", "invalid character '2' after array element"],
    ['"\\q"', "invalid character 'q' in string escape code"],
    ["nul!", "invalid character '!' in literal null (expecting 'l')"],
    ["'", String.raw`invalid character '\'' looking for beginning of value`],
    ["-x", "invalid character 'x' in numeric literal"],
  ];
  for (const [text, message] of mistakes)
    t.is(
      messageOf(() => parseJson(text)),
      message,
      text,
    );
});

test("a body's names match in any case, and unknown ones are ignored", (t) => {
  const body = check(serviceBody, { name: "a", taskTemplate: { containerspec: { IMAGE: "x", Novelty: 3 } } });
  const spec = serviceBody.read(body);
  t.is(spec.annotations?.name, "a");
  t.is(spec.task?.container?.image, "x");
  t.is(spec.replicated?.replicas, 1);
});

test("null is the same as absent", (t) => {
  const spec = serviceBody.read(
    check(serviceBody, {
      Name: null,
      TaskTemplate: { ContainerSpec: { Image: "x", Env: null, Mounts: [null] }, RestartPolicy: {}, Resources: null },
      Mode: { Replicated: { Replicas: null } },
    }),
  );
  t.deepEqual(spec.task?.container?.env, []);
  t.is(spec.task?.container?.mounts[0]?.type, Mount_Type.BIND);
  t.is(spec.task?.restart?.condition, RestartPolicy_RestartCondition.ANY);
  t.is(spec.task?.resources, null);
});

test("a value of a wrong type is refused with the struct, the path and the type of Go", (t) => {
  t.is(
    messageOf(() => check(serviceBody, { TaskTemplate: { ContainerSpec: { Secrets: [{ File: { Mode: -1 } }] } } })),
    "json: cannot unmarshal number -1 into Go struct field " +
      "SecretReferenceFileTarget.TaskTemplate.ContainerSpec.Secrets.File.Mode of type fs.FileMode",
  );
});

test("base64 is read strictly, and the first wrong byte is named", (t) => {
  const read = (Data: string): Uint8Array => secretBody.read(check(secretBody, { Data })).data;
  t.deepEqual([...read("YWI=")], [97, 98]);
  t.deepEqual([...read("YW\nI=")], [97, 98]);
  for (const [data, at] of [
    ["###", 0],
    ["YQ=", 3],
    ["YQ", 0],
    ["YQ==x", 4],
    ["Y===", 1],
  ] as const)
    t.is(
      messageOf(() => read(data)),
      `illegal base64 data at input byte ${at}`,
      data,
    );
});

test("fields that a version does not know are not taken from its requests", (t) => {
  const body = check(serviceBody, {
    TaskTemplate: {
      ContainerSpec: {
        Image: "x",
        Ulimits: [{ Name: "nofile" }],
        Mounts: [{ BindOptions: { ReadOnlyNonRecursive: true } }],
      },
    },
  });
  const container = (version: string) => serviceBody.read(knownTo(version, body)).task?.container;
  t.is(container("1.40")?.ulimits.length, 0);
  t.is(container("1.41")?.ulimits.length, 1);
  t.is(container("1.43")?.mounts[0]?.bindOptions, null);
  t.is(container("1.44")?.mounts[0]?.bindOptions?.readonlynonrecursive, true);
});

test("an object is written once, and its successor anew", (t) => {
  let conversions = 0;
  const shown = writtenOnce(({ name }: { readonly name: string }) => {
    conversions += 1;
    return {
      Name: name,
      Labels: new Map([
        ["b", "2"],
        ["a", "1"],
      ]),
    };
  });
  const before = { name: "a" };
  t.is(textOf(shown(before)), '{"Name":"a","Labels":{"a":"1","b":"2"}}');
  t.is(textOf([1, "x"]), '[1,"x"]');
  t.is(textOf(shown(before)), textOf(shown(before)));
  t.is(textOf(shown({ ...before, name: "c" })), '{"Name":"c","Labels":{"a":"1","b":"2"}}');
  t.is(conversions, 2);
});

test("a part that objects share is converted once, and is written as if it were not shared", (t) => {
  let conversions = 0;
  const partOf = ({ name }: { readonly name: string }) => {
    conversions += 1;
    return {
      Name: name,
      None: unlessEmpty(""),
      Labels: new Map([
        ["b", "2"],
        ["a", "1"],
      ]),
      List: [new Map([["c", "3"]])],
    };
  };
  const part = partOnce(partOf);
  const shared = { name: "a" };
  const texts = [1, 2].map((id) => textOf({ ID: id, Part: part(shared) }));
  t.is(conversions, 1);
  t.deepEqual(
    texts,
    [1, 2].map((id) => textOf({ ID: id, Part: partOf(shared) })),
  );
});

test("filters come in two formats", (t) => {
  const filters = parseFilters('{"label":{"a=b":true,"c":true},"name":["x"]}');
  t.deepEqual(filters.pairs("label"), { a: "b", c: "" });
  t.deepEqual(filters.of("name"), ["x"]);
  t.true(parseFilters("").isEmpty);
  t.is(
    messageOf(() => filters.accept(["name"])),
    "invalid filter 'label'",
  );
  t.is(
    messageOf(() => parseFilters("x")),
    "invalid filter",
  );
  const old = { status: 500 };
  t.is(
    messageOf(() => parseFilters('{"label":["a"]}', old).accept(["name"])),
    "Invalid filter 'label'",
  );
  t.regex(
    messageOf(() => parseFilters("x", old)),
    /^invalid character 'x'/,
  );
});

test("a filter's pattern that could take exponential time is compared as plain text", (t) => {
  const filters = parseFilters('{"name":["(a+)+$"]}');
  t.false(filters.matches("name", `${"a".repeat(40)}!`));
  t.true(filters.matches("name", "x(a+)+$"));
  t.true(parseFilters('{"name":["^web\\\\."]}').matches("name", "web.1"));
});

test("versions compare by number", (t) => {
  t.true(isOlder("1.9", "1.24"));
  t.false(isOlder("1.55", "1.55"));
  t.false(isOlder("2.0", "1.55"));
});

test("query values are read as a stock engine reads them", (t) => {
  t.deepEqual([null, "", "0", "no", "False", "none", "1", "yes", "x"].map(isSet), [
    false,
    false,
    false,
    false,
    false,
    false,
    true,
    true,
    true,
  ]);
  t.deepEqual(timestampOf("12.5"), { seconds: 12, nanos: 500_000_000 });
  t.is(timestampOf(""), null);
  t.is(versionOf(new URLSearchParams("version=12"), "node"), 12);
});

test("an outdated version is SwarmKit's UNKNOWN, which clients match", (t) => {
  const failure = failureOf(new RpcError(Status.ABORTED, "update out of sequence"));
  t.is(failure?.status, 500);
  t.is(failure?.message, "rpc error: code = Unknown desc = update out of sequence");
  t.is(failureOf(new TypeError("ours")), null);
});

test("a list is written as its client reads it, lets other events run, and ends when the client leaves", async (t) => {
  const total = 100_000;
  let written = 0;
  let turns = 0;
  let ended: Promise<null> | null = null;
  function* items(): Iterable<number> {
    for (let at = 0; at < total; at += 1) {
      written += 1;
      yield at;
    }
  }
  const server = createServer((_message, response: ServerResponse) => {
    written = 0;
    ended = writeList({ response } as DockerRequest, items(), (at) => ({ Number: at, Filler: "x".repeat(100) }));
  }).listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const ask = async () => {
    const sent = get({ host: "127.0.0.1", port, agent: false });
    const [response] = (await once(sent, "response")) as [NodeJS.ReadableStream];
    return { sent, response };
  };

  const counting = setInterval(() => (turns += 1), 1);
  const { response } = await ask();
  let text = "";
  for await (const chunk of response) text += String(chunk);
  clearInterval(counting);
  t.is((JSON.parse(text) as unknown[]).length, total);
  t.true(turns > 1, "timers ran meanwhile");

  const idle = await ask();
  // As much as the buffers of both sides hold, and no more.
  let before = -1;
  while (before !== written) {
    before = written;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  t.true(written < total);
  idle.sent.destroy();
  t.is(await (ended as Promise<null> | null), null);
  t.true(written < total);
});

test("a network without IPv4 is refused in the versions that know the wish", (t) => {
  const refusal = (version: string, body: Json): string => messageOf(() => demandIPv4({ version }, body));
  const option = (family: 4 | 6, value: string): Json => ({
    Options: { [`com.docker.network.enable_ipv${family}`]: value },
  });
  const refused = "IPv4 cannot be disabled in a Swarm scoped network";
  t.is(refusal("1.48", { EnableIPv4: false }), refused);
  t.is(refusal("1.48", option(4, "false")), refused);
  t.is(refusal("1.48", { EnableIPv4: true, ...option(4, "false") }), "");
  t.is(refusal("1.48", option(4, "odd")), 'driver-opt "com.docker.network.enable_ipv4" is not a valid bool');
  t.is(
    refusal("1.48", { EnableIPv4: false, ...option(6, "odd") }),
    'driver-opt "com.docker.network.enable_ipv6" is not a valid bool',
  );
  t.is(refusal("1.48", { EnableIPv6: false, ...option(6, "odd") }), "");
  t.is(refusal("1.48", { EnableIPv4: null, Options: null }), "");
  for (const body of [{ EnableIPv4: false }, option(4, "odd"), option(6, "odd")]) t.is(refusal("1.47", body), "");
});

test("the cluster's networks have IPv4 in the versions that show it", (t) => {
  const shown = (version: string): unknown => versionedNetwork({ version }, Network.create({}))["EnableIPv4"];
  t.is(shown("1.47"), undefined);
  t.is(shown("1.48"), true);
});

test("a size that is not a number is refused in the words of its version", (t) => {
  const refusal = (version: string, text: string): string =>
    messageOf(() => sizeOf({ version, query: new URLSearchParams(text) }));
  t.is(refusal("1.47", "h=10"), 'strconv.Atoi: parsing "": invalid syntax');
  t.is(refusal("1.48", "h=10"), 'invalid resize width "": invalid syntax');
  t.is(refusal("1.48", "h=ten&w=20"), 'invalid resize height "ten": invalid syntax');
  t.deepEqual(sizeOf({ version: "1.48", query: new URLSearchParams("h=10&w=20") }).width, 20);
});

test("times and durations of a filter are read as Go reads them", (t) => {
  const now = Date.parse("2026-11-29T12:00:00Z");
  for (const [text, time] of [
    ["24h", now - 86_400_000],
    ["1h30m", now - 5_400_000],
    ["-1.5h", now + 5_400_000],
    ["250ms", now - 250],
    ["0", 0],
    ["12.5", 12_500],
    ["1795937627", 1_795_937_627_000],
    ["2020-01-01", new Date(2020, 0, 1).getTime()],
    ["2020-01-01T10", new Date(2020, 0, 1, 10).getTime()],
    ["2020-01-01T10:05Z", Date.UTC(2020, 0, 1, 10, 5)],
    ["2020-01-01T10:00:00.25+02:00", Date.UTC(2020, 0, 1, 8, 0, 0, 250)],
  ] as const)
    t.is(timeBefore(text, now), time, text);
  for (const text of ["", "odd", "1.x", "1:2", "2020-13-01", "24 h", "1d", "-5"])
    t.is(timeBefore(text, now), null, text);
});

test("disk usage is shown of the kinds that a client names", (t) => {
  const types = (version: string, query: string): readonly string[] => [
    ...usageTypesOf({ version, query: new URLSearchParams(query) }),
  ];
  t.is(types("1.51", "").length, 4);
  t.deepEqual(types("1.51", "type=image&type=volume"), ["image", "volume"]);
  t.is(
    messageOf(() => types("1.42", "type=odd")),
    "unknown object type: odd",
  );
  t.is(types("1.41", "type=odd").length, 4);
});

test("disk usage has the shape of its version: lists, lists and kinds, or kinds alone", (t) => {
  const usage = (version: string, search: string): unknown => {
    const request = { version, query: new URLSearchParams(search) };
    const types = usageTypesOf(request);
    const containers = types.has("container") ? { total: 3, running: 2, list: ["c"] } : null;
    return JSON.parse(JSON.stringify(usageObject(request, types, containers)));
  };
  const lists = { Images: [], Containers: ["c"], Volumes: [], BuildCache: [] };
  const kinds = { ImageUsage: {}, VolumeUsage: {}, BuildCacheUsage: {} };
  const counts = { ActiveCount: 2, TotalCount: 3 };
  t.deepEqual(usage("1.41", ""), { LayersSize: 0, ...lists, BuilderSize: 0 });
  t.deepEqual(usage("1.51", "type=image"), {
    LayersSize: 0,
    Images: [],
    Containers: null,
    Volumes: null,
    BuildCache: null,
  });
  // Types of github.com/moby/moby/api, and the server of github.com/moby/moby/v2, which keeps the lists for clients without a version.
  t.deepEqual(usage("1.55", ""), { ...lists, ...kinds, ContainerUsage: counts });
  t.deepEqual(usage("1.55", "verbose=1"), { ...kinds, ContainerUsage: { ...counts, Items: ["c"] } });
  t.deepEqual(usage("1.55", "type=volume&verbose=1"), { VolumeUsage: {} });
  t.deepEqual(usage("1.52", "type=container"), { Containers: ["c"], ContainerUsage: counts });
});
