import test from "ava";
import fc from "fast-check";
import { decode, isTooDeep } from "../../edges/juju/wire/decode.ts";
import { encodeError, encodeResult } from "../../edges/juju/wire/encode.ts";
import { depthMax } from "../../edges/juju/wire/limits.ts";
import { RequestError } from "../../edges/juju/request-error.ts";

const requestOf = (message: unknown) => {
  const decoded = decode(typeof message === "string" ? message : JSON.stringify(message));
  return decoded.kind === "request" ? decoded.request : decoded;
};

test("the shape follows from the id's key, in any case, and one connection may use both", (t) => {
  t.like(requestOf({ "request-id": 1, type: "Client", version: 6, request: "FullStatus", params: null }), {
    shape: "V1",
    requestId: 1,
    type: "Client",
    version: 6,
    request: "FullStatus",
    params: null,
  });
  t.like(requestOf({ RequestId: 0, Type: "Client", Request: "Status" }), {
    shape: "V0",
    requestId: 0,
    version: null,
    id: "",
    params: undefined,
  });
  // libjuju's watcher writes `Id` beside the newer keys.
  t.like(requestOf('{"type":"AllWatcher","request":"Next","version":3,"params":{},"Id":"1","request-id":5}'), {
    shape: "V1",
    id: "1",
  });
  t.like(requestOf({ REQUESTID: 3, TYPE: "A", REQUEST: "B", vErSiOn: 2 }), { shape: "V0", type: "A", version: 2 });
  t.like(requestOf({ "request-id": 0, RequestId: 4, Type: "A" }), { shape: "V0", requestId: 4 });
  t.like(requestOf({ "request-id": 9, RequestId: 4, Type: "A" }), { shape: "V1", requestId: 9 });
});

for (const [what, message] of [
  ["not JSON", "hello"],
  ["half of an object", '{"request-id":1'],
  ["nothing", ""],
  ["a list", "[]"],
  ["a number", "7"],
  ["null", "null"],
  ["an object without an id", "{}"],
  ["an id that is a string", '{"request-id":"1"}'],
  ["an id that is a fraction", '{"RequestId":1.5}'],
  ["an id below 0", '{"RequestId":-1}'],
  ["an id of 2^53", `{"request-id":${2 ** 53}}`],
  ["an id of 0 in the newer shape", '{"request-id":0}'],
  ["a null id", '{"request-id":null}'],
  ["an object nested too deeply", `{"RequestId":1,"Params":${"[".repeat(depthMax)}${"]".repeat(depthMax)}}`],
  ["a megabyte of brackets", "[".repeat(1_000_000)],
] as const) {
  test(`${what} cannot be answered`, (t) => t.is(decode(message).kind, "broken"));
}

for (const [what, fields] of [
  ["a type", { Type: 5 }],
  ["an id", { Id: 5 }],
  ["a request", { Request: {} }],
  ["a version", { Version: "1" }],
  ["a version below 0", { Version: -1 }],
  ["params that are a list", { Params: [] }],
  ["params that are a string", { Params: "x" }],
] as const) {
  test(`${what} of the wrong kind is answered under its id`, (t) => {
    t.like(decode(JSON.stringify({ RequestId: 8, ...fields })), { kind: "malformed", requestId: 8, shape: "V0" });
  });
}

test("the largest id is 2^53 - 1, and is returned as a number", (t) => {
  const requestId = 2 ** 53 - 1;
  t.like(requestOf({ "request-id": requestId, type: "A" }), { requestId });
  t.is(encodeResult("V1", requestId, {}), `{"request-id":${requestId},"response":{}}`);
});

test("depth is counted outside of strings", (t) => {
  t.false(isTooDeep(JSON.stringify({ text: "[".repeat(500) + '\\"' + "{".repeat(500) })));
  t.true(isTooDeep(`${"[".repeat(101)}`));
  t.false(isTooDeep(`${"[],".repeat(1_000)}`));
});

test("a success has no error key, a failure has a response, each in its own shape", (t) => {
  t.is(encodeResult("V0", 0, { "environ-tag": "e" }), '{"RequestId":0,"Response":{"EnvironTag":"e"}}');
  const error = new RequestError("machine 99 not found", "not found");
  t.is(
    encodeError("V0", 1, error),
    '{"RequestId":1,"Error":"machine 99 not found","ErrorCode":"not found","Response":{}}',
  );
  t.is(
    encodeError("V1", 1, new RequestError("x", "redirection required", { "ca-cert": "y" })),
    '{"request-id":1,"error":"x","error-code":"redirection required","error-info":{"ca-cert":"y"},"response":{}}',
  );
  t.is(encodeError("V0", 1, new RequestError("x", "")), '{"RequestId":1,"Error":"x","Response":{}}');
});

test("property names of built-in objects are harmless as keys", (t) => {
  const message = '{"RequestId":1,"Type":"A","__proto__":{"x":1},"Params":{"__proto__":{"polluted":true}}}';
  t.is(decode(message).kind, "request");
  t.is(({} as Record<string, unknown>)["polluted"], undefined);
});

test("fuzz: any text is decoded or rejected, and never throws", (t) => {
  const key = fc.constantFrom(
    "request-id",
    "RequestId",
    "type",
    "Type",
    "version",
    "Id",
    "Request",
    "params",
    "Params",
  );
  const message = fc.dictionary(key, fc.jsonValue({ maxDepth: 3 }), { maxKeys: 9 });
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.json(),
        message.map((each) => JSON.stringify(each)),
      ),
      (text) => {
        const decoded = decode(text);
        if (decoded.kind === "broken") t.not(decoded.reason, "");
        else {
          const { requestId, shape } = decoded.kind === "request" ? decoded.request : decoded;
          t.true(Number.isSafeInteger(requestId) && requestId >= (shape === "V1" ? 1 : 0));
        }
      },
    ),
    { numRuns: 2_000 },
  );
});
