// The server of the web interface on loopback, with a backend that the test makes up: who is let in, and the limits of a page.
import test, { type ExecutionContext } from "ava";
import { contentPolicy } from "../../edges/ui/answers.ts";
import type { CallMethod, UiBackend, UiSession } from "../../edges/ui/backend.ts";
import * as limits from "../../edges/ui/limits.ts";
import { listenLoopback, type LoopbackServer } from "../../edges/ui/loopback.ts";
import type { PageLimits } from "../../edges/ui/page-socket.ts";
import { until } from "../fixtures/until.ts";
import { UiHello } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { connectPage, cookieIn, fetched, quietLog, type PageClient } from "../support/page-client.ts";
import { patient } from "../support/slowness.ts";

test.beforeEach((t) => t.timeout(patient(20_000)));

interface Scene {
  readonly server: LoopbackServer;
  /** Without the token. */
  readonly base: string;
  /** Opens the address once. */
  enter(): Promise<string>;
  /** A page's WebSocket with its cookie. */
  page(): Promise<PageClient>;
}

async function scene(
  t: ExecutionContext,
  {
    call = echo,
    backend = {},
    changed = {},
    open,
  }: {
    readonly call?: CallMethod;
    readonly backend?: Partial<UiBackend>;
    readonly changed?: Partial<PageLimits>;
    readonly open?: () => Promise<UiSession>;
  } = {},
): Promise<Scene> {
  const hello = UiHello.create({ version: "1.2.3", role: "operator", user: "ada", cluster: "test" });
  const server = await listenLoopback({
    port: 0,
    command: "muster ui",
    open: open ?? (() => Promise.resolve({ hello, backend: { call, ...backend } })),
    log: quietLog,
    limits: { ...limits, ...changed },
  });
  t.teardown(() => server.close());
  const base = new URL("/", server.address).href;
  let cookie = "";
  const enter = async (): Promise<string> => (cookie ||= cookieIn(await fetched(server.address)));
  return {
    server,
    base,
    enter,
    async page() {
      const client = await connectPage(base, { cookie: await enter() });
      t.teardown(() => client.socket.terminate());
      await client.hello;
      return client;
    },
  };
}

/** Answers with the request. */
const echo: CallMethod = (_method, request, sink) => {
  void sink.write(request);
  return Promise.resolve();
};

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

test("the token lets the first browser in, which gets a cookie, and is then used up", async (t) => {
  const { server, base } = await scene(t);
  const first = await fetched(server.address);
  t.is(first.status, 200);
  t.regex(first.body, /data-to="\/"/);
  t.regex(first.headers["set-cookie"]?.[0] ?? "", /^muster-ui=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict$/);
  t.regex((await fetched(base, { headers: { cookie: cookieIn(first) } })).body, /<div id="app">/);
  const second = await fetched(server.address);
  t.is(second.status, 401);
  t.regex(second.body, /The token in this address has been used: run &?.*muster ui.* again/);
  t.is(second.headers["set-cookie"], undefined);
  t.is(
    (await fetched(server.address, { headers: { cookie: cookieIn(first) } })).status,
    200,
    "a reload by the same browser",
  );
});

test("without the token, or with one of an earlier run, the page says what to do", async (t) => {
  const { base, server } = await scene(t);
  for (const path of ["", "main.js", "style.css", "ws", "nothing"]) {
    const { status, body } = await fetched(base + path);
    t.is(status, 401, path);
    t.regex(body, /needs the one-time token: open the address that .*muster ui.* printed/);
  }
  const old = await fetched(`${base}?token=AAAA`);
  t.is(old.status, 401);
  t.regex(old.body, /is not valid, or is of an earlier run/);
  t.is((await fetched(server.address, { method: "HEAD" })).status, 200);
  t.is((await fetched(server.address)).headers["set-cookie"]?.length, 1, "a HEAD request does not use the token up");
  t.is((await fetched(base, { headers: { cookie: "muster-ui=guessed" } })).status, 401);
  for (const path of ["door.css", "door.js"]) t.is((await fetched(base + path)).status, 200, path);
});

test("a browser that follows a link from another site goes to the page once more, with its cookie", async (t) => {
  const { base } = await scene(t);
  const headers = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" };
  t.regex((await fetched(base, { headers })).body, /data-to="\/\?again"/);
  t.notRegex((await fetched(`${base}?again`, { headers })).body, /data-to/);
  t.notRegex((await fetched(base)).body, /data-to/);
});

test("TD2: only the random name is answered, which no answer tells: a name that other servers share gets nothing", async (t) => {
  const { server, base, enter } = await scene(t);
  const cookie = await enter();
  const { hostname } = new URL(base);
  t.regex(hostname, /^muster-[0-9a-f]{32}\.localhost$/);
  t.not(hostname, new URL((await scene(t)).base).hostname);
  const { port } = server;
  const others = ["127.0.0.1", "localhost", "[::1]", "evil.example", `x.${hostname}`, `${hostname}.`, `${hostname}@x`];
  for (const host of [...others.map((name) => `${name}:${port}`), "127.0.0.1"]) {
    const { status, body } = await fetched(base, { headers: { host, cookie } });
    t.is(status, 421, host);
    t.regex(body, /answers only at the address that .*muster ui.* printed/);
    t.false(body.includes(hostname));
    await t.throwsAsync(connectPage(base, { host, cookie }), { message: /^refused: 421/ });
  }
});

test("TD2: a tunnel may begin at another port, and a page at another port of the same name is another one", async (t) => {
  const { base, enter } = await scene(t);
  const cookie = await enter();
  const host = `${new URL(base).hostname}:1`;
  t.is((await fetched(base, { headers: { host, cookie } })).status, 200);
  const client = await connectPage(base, { host, cookie, origin: `http://${host}` });
  t.like(await client.hello, { user: "ada" });
  client.socket.terminate();
  await t.throwsAsync(connectPage(base, { host, cookie }), { message: /^refused: 403/ });
  await t.throwsAsync(connectPage(base, { cookie, origin: `http://${host}` }), { message: /^refused: 403/ });
});

test("another page's WebSocket, form or frame is refused", async (t) => {
  const { base, enter } = await scene(t);
  const cookie = await enter();
  for (const origin of ["https://evil.example", "null", base.replace("http:", "https:"), ""])
    await t.throwsAsync(connectPage(base, { cookie, origin }), { message: /^refused: 403 .*not from another page/ });
  const posted = await fetched(base, { method: "POST", headers: { cookie, origin: "https://evil.example" } });
  t.is(posted.status, 403);
  t.is((await fetched(base, { method: "POST", headers: { cookie, origin: base.slice(0, -1) } })).status, 405);
  const framed = await fetched(base, { headers: { cookie, "sec-fetch-dest": "iframe" } });
  t.is(framed.status, 403);
  t.regex(framed.body, /does not run inside of another page/);
});

test("a WebSocket needs the cookie and its own path", async (t) => {
  const { base, enter } = await scene(t);
  await t.throwsAsync(connectPage(base, {}), { message: /^refused: 401/ });
  const cookie = await enter();
  await t.throwsAsync(connectPage(`${base}other/`, { cookie, origin: base.slice(0, -1) }), {
    message: /^refused: 404/,
  });
});

test("every answer has the strict headers; files are kept by the browser, and asked for again", async (t) => {
  const { base, enter } = await scene(t);
  const cookie = await enter();
  for (const [path, headers] of [
    ["", { cookie }],
    ["main.js", { cookie }],
    ["", {}],
    ["nothing", { cookie }],
  ] as const) {
    const got = (await fetched(base + path, { headers })).headers;
    t.is(got["content-security-policy"], contentPolicy);
    t.is(got["x-content-type-options"], "nosniff");
    t.is(got["x-frame-options"], "DENY");
    t.is(got["referrer-policy"], "same-origin");
    t.is(got["cross-origin-opener-policy"], "same-origin");
    t.is(got["cross-origin-resource-policy"], "same-origin");
  }
  t.notRegex(contentPolicy, /unsafe|http|\*/);
  const file = await fetched(`${base}main.js`, { headers: { cookie } });
  t.is(file.headers["cache-control"], "private, no-cache");
  const again = { cookie, "if-none-match": file.headers.etag ?? "" };
  t.deepEqual([(await fetched(`${base}main.js`, { headers: again })).status, file.status], [304, 200]);
  const small = await fetched(`${base}main.js`, { headers: { cookie, "accept-encoding": "gzip, br" } });
  t.is(small.headers["content-encoding"], "gzip");
  t.is((await fetched(`${base}nothing`, { headers: { cookie } })).status, 404);
  t.is((await fetched(base, { headers: { cookie } })).headers["cache-control"], "private, no-cache");
  t.is((await fetched(base)).headers["cache-control"], "no-store");
});

test("calls of a page are answered side by side, with the status, the error's text and a trace", async (t) => {
  const seen: string[] = [];
  const { page } = await scene(t, {
    async call(method, request, sink, { traceparent }) {
      seen.push(traceparent);
      if (method === "/refused") throw new RpcError(Status.PERMISSION_DENIED, "this needs the role admin");
      if (method === "/broken") throw new TypeError("secret of the program");
      void sink.write(request);
      void sink.write(bytes("second"));
    },
  });
  const client = await page();
  t.like(await client.hello, { version: "1.2.3", role: "operator", user: "ada", cluster: "test" });
  client.send({ call: 1, method: "/stream", message: bytes("first") });
  client.send({ call: 2, method: "/refused" });
  client.send({ call: 3, method: "/broken" });
  for (const call of [1, 2, 3]) await client.until((each) => each.call === call && each.end);
  const of = (call: number) => client.received.filter((each) => each.call === call);
  t.deepEqual(
    of(1).map(({ hasMessage, message, end, status }) => [hasMessage, new TextDecoder().decode(message), end, status]),
    [
      [true, "first", false, 0],
      [true, "second", false, 0],
      [false, "", true, 0],
    ],
  );
  t.like(of(2)[0], { end: true, status: Status.PERMISSION_DENIED, error: "this needs the role admin" });
  t.like(of(3)[0], { end: true, status: Status.INTERNAL, error: "internal error" });
  for (const [at, call] of [1, 2, 3].entries()) {
    const [first, ...others] = of(call);
    t.regex(first?.traceId ?? "", /^[0-9a-f]{32}$/);
    t.is(seen[at]?.split("-")[1], first?.traceId);
    for (const { traceId } of others) t.is(traceId, "");
  }
});

test("a cancelled call ends without another message, and a page that goes away ends all of its calls", async (t) => {
  const ended: string[] = [];
  const closing = Promise.withResolvers<void>();
  const { page } = await scene(t, {
    call: (method, _request, sink, { signal }) =>
      new Promise((resolve) => {
        void sink.write(bytes(method));
        signal.addEventListener("abort", () => {
          ended.push(method);
          void sink.write(bytes("too late"));
          resolve();
        });
      }),
    backend: { close: () => closing.resolve() },
  });
  const client = await page();
  client.send({ call: 1, method: "/one" });
  client.send({ call: 2, method: "/two" });
  await client.until(({ call }) => call === 2);
  client.send({ call: 1, cancel: true });
  client.send({ call: 9, cancel: true });
  client.send({ call: 1, method: "/one-again" });
  await client.until(({ message }) => new TextDecoder().decode(message) === "/one-again");
  t.deepEqual(ended, ["/one"]);
  t.is(client.received.filter(({ end, message }) => end || new TextDecoder().decode(message) === "too late").length, 0);
  client.socket.terminate();
  await closing.promise;
  t.deepEqual(ended.toSorted(), ["/one", "/one-again", "/two"]);
});

const broken = test.macro(
  async (t, data: Uint8Array | string | readonly Uint8Array[], code: number, reason: RegExp) => {
    const { page } = await scene(t, { call: () => new Promise(() => undefined) });
    const client = await page();
    for (const each of Array.isArray(data) ? (data as readonly Uint8Array[]) : [data as Uint8Array | string])
      client.socket.send(each);
    const closed = await client.closed;
    t.is(closed.code, code);
    t.regex(closed.reason, reason);
  },
);
test("a text message ends the connection", broken, "hello", 1003, /binary/);
test("a message that cannot be decoded ends the connection", broken, new Uint8Array([0xff, 0xff]), 1007, /malformed/);
test("a call with the number 0 ends the connection", broken, new Uint8Array(), 1008, /numbered from 1/);
test(
  "a number that is in use ends the connection",
  broken,
  [new Uint8Array([8, 1, 18, 2, 47, 120]), new Uint8Array([8, 1, 18, 2, 47, 120])],
  1008,
  /call 1 is in progress already/,
);
test("a message above the limit ends the connection", broken, new Uint8Array(limits.messageBytesMax + 1), 1009, /^$/);

test("calls and bytes of requests in progress are limited, and others are not affected", async (t) => {
  const { page } = await scene(t, {
    call: (_method, _request, _sink, { signal }) =>
      new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
    changed: { callsMax: 3, requestBytesMax: 100 },
  });
  const client = await page();
  client.send({ call: 1, method: "/x", message: new Uint8Array(60) });
  client.send({ call: 2, method: "/x", message: new Uint8Array(60) });
  t.like(await client.until(({ call }) => call === 2), {
    end: true,
    status: Status.RESOURCE_EXHAUSTED,
    error: "the requests of a page's calls in progress can have at most 100 bytes",
  });
  for (const call of [3, 4, 5]) client.send({ call, method: "/x" });
  t.like(await client.until(({ call }) => call === 5), {
    status: Status.RESOURCE_EXHAUSTED,
    error: "a page can have at most 3 calls in progress",
  });
  client.send({ call: 1, cancel: true });
  client.send({ call: 6, method: "/x", message: new Uint8Array(60) });
  client.send({ call: 7, method: "/x" });
  t.like(await client.until(({ call }) => call === 7), { end: true });
  t.false(client.received.some(({ call }) => [1, 3, 4, 6].includes(call)));
});

test("a stream waits for a page that does not read, and continues when it reads", async (t) => {
  const message = new Uint8Array(256 * 1024);
  let written = 0;
  const waits = Promise.withResolvers<void>();
  const { page } = await scene(t, {
    async call(_method, _request, sink) {
      for (let each = 0; each < 200; each += 1) {
        const room = sink.write(message);
        written += 1;
        if (room === null) continue;
        if (each > 10) waits.resolve();
        await room;
      }
    },
  });
  const client = await page();
  client.socket.pause();
  client.send({ call: 1, method: "/x" });
  await waits.promise;
  t.true(written < 100, `${written} messages of 200 were written`);
  client.socket.resume();
  await client.until(({ end }) => end);
  t.is(client.received.length, 201);
});

test("a backend that does not wait is cut off, and a page that never reads is given up", async (t) => {
  const aborted = Promise.withResolvers<void>();
  const closing = Promise.withResolvers<void>();
  const { page } = await scene(t, {
    call: (_method, _request, sink, { signal }) =>
      new Promise((resolve) => {
        signal.addEventListener("abort", () => {
          aborted.resolve();
          resolve();
        });
        for (let each = 0; each < 200 && !signal.aborted; each += 1) void sink.write(new Uint8Array(256 * 1024));
      }),
    backend: { close: () => closing.resolve() },
    changed: { unsentBytesMax: 8 * 1024 * 1024, checkMs: 200 },
  });
  const client = await page();
  client.socket.pause();
  client.send({ call: 1, method: "/x" });
  await aborted.promise;
  await closing.promise;
  t.pass();
});

test.serial("PS4: a page that slowly takes one large message stays, and is given up when it stops", async (t) => {
  const checkMs = 800;
  const closing = Promise.withResolvers<void>();
  const { page } = await scene(t, {
    call(_method, _request, sink) {
      void sink.write(new Uint8Array(48 * 1024 * 1024));
      return Promise.resolve();
    },
    backend: { close: () => closing.resolve() },
    changed: { checkMs },
  });
  const slow = await page();
  slow.socket.pause();
  const begun = performance.now();
  slow.send({ call: 1, method: "/x" });
  // At most 2 MiB each time, which is what Node reads at once.
  const reading = setInterval(() => {
    slow.socket.resume();
    setImmediate(() => slow.socket.pause());
  }, checkMs / 4);
  t.teardown(() => clearInterval(reading));
  const { message } = await Promise.race([
    slow.until(({ hasMessage }) => hasMessage),
    slow.closed.then(({ code }) => Promise.reject(new Error(`closed: ${code}`))),
  ]);
  t.is(message.length, 48 * 1024 * 1024);
  t.true(performance.now() - begun > 3 * checkMs, "it took several checks");
  clearInterval(reading);
  slow.socket.pause();
  slow.send({ call: 2, method: "/x" });
  await closing.promise;
});

test("PS3: all pages together hold a limited number of bytes; the one that holds the most ends", async (t) => {
  const mib = 1024 * 1024;
  const gone: string[] = [];
  const hello = UiHello.create({});
  let opened = 0;
  const { page } = await scene(t, {
    open: () => {
      const name = ["reader", "first", "second"][opened++] ?? "";
      const call: CallMethod = (method, request, sink, { signal }) => {
        if (method === "/keep") return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
        if (method === "/answers") for (let each = 0; each < 60; each += 1) void sink.write(new Uint8Array(mib));
        return echo(method, request, sink, { signal, traceparent: "" });
      };
      return Promise.resolve({ hello, backend: { call, close: () => gone.push(name) } });
    },
    // A page's answers that the kernel does not take, or the requests of another, are more.
    changed: { pagesBytesMax: 24 * mib, checkMs: 600_000 },
  });
  const reader = await page();
  const first = await page();
  first.socket.pause();
  first.send({ call: 1, method: "/answers" });
  await until("the page that does not read to end", () => gone.includes("first"));
  const second = await page();
  for (let call = 1; call <= 4; call += 1) second.send({ call, method: "/keep", message: new Uint8Array(3 * mib) });
  for (let call = 5; call <= 9; call += 1) second.send({ call, method: "/x", message: bytes("heard") });
  await second.until(({ call }) => call === 9);
  t.deepEqual(gone, ["first"], "twelve of 24 MiB");
  reader.send({ call: 1, method: "/x", message: bytes("still here") });
  t.is((await reader.until(({ end }) => end)).status, Status.OK);
});

test("PS3: an unfinished message counts, too", async (t) => {
  const mib = 1024 * 1024;
  const closing = Promise.withResolvers<void>();
  const { page } = await scene(t, {
    backend: { close: () => closing.resolve() },
    changed: { pagesBytesMax: 2 * mib, checkMs: 600_000 },
  });
  const client = await page();
  client.socket.send(new Uint8Array(1 * mib), { fin: false, binary: true });
  client.socket.send(new Uint8Array(2 * mib), { fin: false, binary: true });
  await closing.promise;
  t.is((await client.closed).code, 1006);
});

test("a page that does not answer the close frame is cut off in time", async (t) => {
  let end: (reason: string) => void = () => undefined;
  const closing = Promise.withResolvers<void>();
  const { page } = await scene(t, {
    backend: { onEnded: (listener) => (end = listener), close: () => closing.resolve() },
    changed: { closeTimeoutMs: 100, checkMs: 600_000 },
  });
  const client = await page();
  client.socket.pause();
  const begun = performance.now();
  end("the manager has gone");
  await closing.promise;
  t.true(performance.now() - begun < 25_000, "the library's own time is 30 s");
});

test("a page that sends no pong is given up; one that does stays", async (t) => {
  const givenUp = Promise.withResolvers<void>();
  const { page } = await scene(t, { backend: { close: () => givenUp.resolve() }, changed: { checkMs: 100 } });
  const silent = await page();
  silent.socket.pong = () => undefined;
  const lively = await page();
  await Promise.all([silent.closed, givenUp.promise]);
  lively.send({ call: 1, method: "/x", message: bytes("still here") });
  t.is((await lively.until(({ end }) => end)).status, Status.OK);
});

test("when the backend ends, calls end with UNAVAILABLE and the close frame says why", async (t) => {
  let end: (reason: string) => void = () => undefined;
  const { page } = await scene(t, {
    call: () => new Promise(() => undefined),
    backend: { onEnded: (listener) => (end = listener) },
  });
  const client = await page();
  client.send({ call: 1, method: "/x" });
  client.send({ call: 1, cancel: true });
  client.send({ call: 2, method: "/x" });
  client.send({ call: 3, method: "/x" });
  client.send({ call: 3, cancel: true });
  client.socket.ping();
  await new Promise((resolve) => client.socket.once("pong", resolve));
  end("the connection to the manager has ended");
  t.deepEqual(await client.closed, { code: 1012, reason: "the connection to the manager has ended" });
  t.deepEqual(
    client.received.map(({ call, status }) => [call, status]),
    [[2, Status.UNAVAILABLE]],
  );
});

test("a manager that cannot be reached is named in the close frame, cut to its size", async (t) => {
  const { base, enter } = await scene(t, {
    open: () => Promise.reject(new Error(`cannot connect to the manager at ${"/très-long".repeat(20)}`)),
  });
  const client = await connectPage(base, { cookie: await enter() });
  const { code, reason } = await client.closed;
  t.is(code, 1012);
  t.regex(reason, /^cannot connect to the manager at \/très-long.*…$/);
  t.true(Buffer.byteLength(reason) <= 123);
});

test("pages are limited in number", async (t) => {
  const { base, enter, page } = await scene(t);
  for (let each = 0; each < limits.loopbackSocketsMax; each += 1) await page();
  await t.throwsAsync(connectPage(base, { cookie: await enter() }), {
    message: /^refused: 503 64 pages are open already/,
  });
});

test("a server that stops tells its pages", async (t) => {
  const { server, page } = await scene(t);
  const client = await page();
  await server.close();
  t.is((await client.closed).code, 1001);
});

test("a taken port is named", async (t) => {
  const { server } = await scene(t);
  const { port } = server;
  await t.throwsAsync(
    listenLoopback({ port, command: "muster ui", open: () => new Promise(() => undefined), log: quietLog }),
    { message: `cannot listen on 127.0.0.1:${port}: another program uses the port: choose another with --port` },
  );
});
