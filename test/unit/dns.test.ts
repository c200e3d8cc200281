// The name server on real sockets of the loopback device: packets, both transports, and forwarding.
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import dns, { type DecodedPacket } from "dns-packet";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { readQuestion } from "../../edges/dns/packets.ts";
import { createNameServers } from "../../edges/dns/server.ts";
import { TcpMessages, tcpMessage } from "../../edges/dns/tcp-messages.ts";
import type { NameQuestion, NameReply } from "../../runtime/ports/name-server.ts";

const address = "127.0.0.1";

async function serve(
  t: ExecutionContext,
  answer: (question: NameQuestion) => NameReply | Promise<NameReply>,
  servers: readonly string[] = [],
): Promise<number> {
  const onLost = (reason: string): void => t.fail(reason);
  const server = await onFreePort(() => createNameServers(() => servers).open({ address, port: 0, answer, onLost }));
  t.teardown(() => server.close());
  return server.port;
}

/** A port that is free for UDP may be in use for TCP: then another is tried. */
async function onFreePort<Result>(open: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await open();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    }
  }
}

function question(name: string, type: "A" | "AAAA" | "PTR" | "TXT" = "A", udpPayloadSize = 0): Buffer {
  return dns.encode({
    id: 4711,
    type: "query",
    flags: dns.RECURSION_DESIRED,
    questions: [{ name, type }],
    additionals:
      udpPayloadSize === 0
        ? []
        : [
            {
              type: "OPT",
              name: ".",
              udpPayloadSize,
              extendedRcode: 0,
              ednsVersion: 0,
              flags: 0,
              flag_do: false,
              options: [],
            },
          ],
  });
}

async function overUdp(t: ExecutionContext, port: number, packet: Buffer): Promise<Buffer> {
  const socket = createSocket("udp4");
  t.teardown(() => socket.close());
  socket.send(packet, port, address);
  const [reply] = (await once(socket, "message")) as [Buffer];
  return reply;
}

async function overTcp(t: ExecutionContext, port: number, ...packets: Buffer[]): Promise<readonly Buffer[]> {
  const socket = connect(port, address);
  t.teardown(() => socket.destroy());
  socket.write(Buffer.concat(packets.map(tcpMessage)));
  const messages = new TcpMessages();
  const replies: Buffer[] = [];
  while (replies.length < packets.length) {
    const [data] = (await once(socket, "data")) as [Buffer];
    replies.push(...messages.take(data));
  }
  return replies;
}

function shown(packet: Buffer): { readonly code: unknown; readonly answers: readonly unknown[] } {
  const { answers = [], rcode } = dns.decode(packet) as DecodedPacket & { readonly rcode: string };
  return { code: rcode, answers: answers.map((each) => ("data" in each ? each.data : each.type)) };
}

const many = Array.from({ length: 100 }, (_, at) => `10.0.0.${at}`);

function example({ name, type }: NameQuestion): NameReply {
  if (type === "PTR") return { kind: "pointers", ttlS: 5, names: ["web.1.x.back"] };
  switch (name.toLowerCase()) {
    case "web":
      return { kind: "addresses", ttlS: 60, addresses: ["10.0.0.2"] };
    case "six":
      return { kind: "addresses", ttlS: 60, addresses: ["fd00::2"] };
    case "many":
      return { kind: "addresses", ttlS: 5, addresses: many };
    case "empty":
    case "unknown":
    case "failed":
    case "refused":
      return { kind: name as "empty" };
    default:
      return { kind: "forward", servers: [] };
  }
}

test("queries are answered on the transport that they used", async (t) => {
  const port = await serve(t, example);
  const reply = await overUdp(t, port, question("WeB"));
  const packet = dns.decode(reply) as DecodedPacket;
  t.is(packet.id, 4711);
  t.true(packet.flag_aa && packet.flag_ra && packet.flag_rd && packet.flag_qr && !packet.flag_tc);
  t.is(packet.questions?.[0]?.name, "WeB");
  t.like(packet.answers?.[0], { name: "WeB", type: "A", ttl: 60, data: "10.0.0.2" });
  t.deepEqual(shown(await overUdp(t, port, question("six", "AAAA"))).answers, ["fd00::2"]);
  const replies = await overTcp(t, port, question("web"), question("2.0.0.10.in-addr.arpa", "PTR"));
  t.deepEqual(replies.map(shown), [
    { code: "NOERROR", answers: ["10.0.0.2"] },
    { code: "NOERROR", answers: ["web.1.x.back"] },
  ]);
});

for (const [name, code] of [
  ["empty", "NOERROR"],
  ["unknown", "NXDOMAIN"],
  ["failed", "SERVFAIL"],
  ["refused", "REFUSED"],
] as const)
  test(`${name} gets ${code}`, async (t) => {
    t.deepEqual(shown(await overUdp(t, await serve(t, example), question(name))), { code, answers: [] });
  });

test("records that do not fit into a packet are omitted and flagged, and TCP has all of them", async (t) => {
  const port = await serve(t, example);
  const small = await overUdp(t, port, question("many"));
  t.true(small.length <= 512);
  t.true((dns.decode(small) as DecodedPacket).flag_tc);
  t.true(shown(small).answers.length > 10);
  const large = await overUdp(t, port, question("many", "A", 4_096));
  t.true(large.length > 512 && large.length <= 1_232);
  t.is((dns.decode(large) as DecodedPacket).additionals?.[0]?.type, "OPT");
  const [whole] = await overTcp(t, port, question("many"));
  t.deepEqual(shown(whole as Buffer).answers, many);
});

test("an unreadable packet gets a format error, and one that is not a query gets no answer", async (t) => {
  const port = await serve(t, example);
  const reply = await overUdp(t, port, question("web").subarray(0, 14));
  t.deepEqual([reply.length, reply.readUInt16BE(0), shown(reply).code], [12, 4711, "FORMERR"]);
  const update = question("web");
  update[2] = 5 << 3;
  t.is(shown(await overUdp(t, port, update)).code, "NOTIMP");
  const two = dns.encode({
    id: 1,
    type: "query",
    questions: [
      { name: "a", type: "A" },
      { name: "b", type: "A" },
    ],
  });
  t.is(shown(await overUdp(t, port, two)).code, "FORMERR");
  t.deepEqual(readQuestion(Buffer.alloc(11)), { kind: "silence" });
  t.deepEqual(readQuestion(dns.encode({ type: "response", questions: [] })), { kind: "silence" });
});

test("no bytes make the parser throw, and a reply has its query's id", (t) => {
  const packets = fc.oneof(
    fc.uint8Array({ maxLength: 600 }),
    // Close to real queries: some bytes are replaced.
    fc.array(fc.tuple(fc.nat(60), fc.nat(255)), { maxLength: 6 }).map((changes) => {
      const packet = question("web.1.abc.back", "AAAA", 1_400);
      for (const [at, value] of changes) packet[at % packet.length] = value;
      return packet;
    }),
  );
  fc.assert(
    fc.property(packets, (bytes) => {
      const read = readQuestion(Buffer.from(bytes));
      if (read.kind === "answered") t.is(read.reply.readUInt16BE(0), Buffer.from(bytes).readUInt16BE(0));
      if (read.kind === "question") t.is(typeof read.question.name, "string");
    }),
    { numRuns: 2_000 },
  );
});

test("a stream of messages is parsed the same however it is split", (t) => {
  const messages = fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 5 });
  fc.assert(
    fc.property(messages, fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 }), (all, cuts) => {
      const stream = Buffer.concat(all.map((each) => tcpMessage(Buffer.from(each))));
      const reader = new TcpMessages();
      const read: Buffer[] = [];
      for (let at = 0, turn = 0; at < stream.length; turn += 1) {
        const end = at + (cuts[turn % cuts.length] as number);
        read.push(...reader.take(stream.subarray(at, end)));
        at = end;
      }
      t.deepEqual(
        read.map((each) => [...each]),
        all.map((each) => [...each]),
      );
    }),
  );
});

/** Answers each query with the result of `reply`; null: no answer. */
function upstream(t: ExecutionContext, reply: (question: Buffer) => Buffer | null): Promise<string> {
  return onFreePort(async () => {
    const udp = createSocket("udp4");
    udp.bind(0, address);
    await once(udp, "listening");
    const { port } = udp.address();
    udp.on("message", (raw, from) => {
      const answer = reply(raw);
      if (answer !== null) udp.send(answer, from.port, from.address);
    });
    const tcp = createServer((socket) => {
      const messages = new TcpMessages();
      socket.on("error", () => {});
      socket.on("data", (data: Buffer) => {
        for (const raw of messages.take(data)) socket.write(tcpMessage(reply(raw) ?? raw));
      });
    }).listen(port, address);
    t.teardown(() => {
      udp.close();
      tcp.close();
    });
    await once(tcp, "listening");
    return `${address}#${port}`;
  });
}

function says(data: string, code = 0): (question: Buffer) => Buffer {
  return (raw) => {
    const { id, questions = [] } = dns.decode(raw) as DecodedPacket;
    const name = questions[0]?.name ?? "";
    const answers = code === 0 ? [{ type: "A" as const, name, ttl: 1, data }] : [];
    return dns.encode({ id: id ?? 0, type: "response", flags: code, questions, answers });
  };
}

test("other names are forwarded, and the reply gets the asker's id again", async (t) => {
  const port = await serve(t, example, [await upstream(t, says("1.2.3.4"))]);
  const reply = await overUdp(t, port, question("example.org"));
  t.is(reply.readUInt16BE(0), 4711);
  t.deepEqual(shown(reply), { code: "NOERROR", answers: ["1.2.3.4"] });
  const [again] = await overTcp(t, port, question("example.org"));
  t.deepEqual(shown(again as Buffer), { code: "NOERROR", answers: ["1.2.3.4"] });
});

test("a server that is silent, fails, answers another question or is not there is followed by the next", async (t) => {
  const other = says("6.6.6.6");
  const bad = [await upstream(t, () => null), await upstream(t, says("", 2)), `${address}#1`, "no address"];
  const port = await serve(t, example, [...bad.slice(1), await upstream(t, says("1.2.3.4"))]);
  t.deepEqual(shown(await overUdp(t, port, question("example.org"))).answers, ["1.2.3.4"]);
  const slow = await serve(t, example, [bad[0] as string, await upstream(t, says("1.2.3.4"))]);
  t.deepEqual(shown(await overUdp(t, slow, question("example.org"))).answers, ["1.2.3.4"]);
  const forger = await upstream(t, (raw) => {
    const forged = other(raw);
    forged[13] = "x".charCodeAt(0);
    return forged;
  });
  const forged = await serve(t, example, [forger, await upstream(t, says("1.2.3.4"))]);
  t.deepEqual(shown(await overUdp(t, forged, question("example.org"))).answers, ["1.2.3.4"]);
});

test("if no server knows, the last one's answer is returned, or a failure", async (t) => {
  const refused = await serve(t, example, [await upstream(t, says("", 5))]);
  t.is(shown(await overUdp(t, refused, question("example.org"))).code, "REFUSED");
  t.is(shown(await overUdp(t, await serve(t, example, []), question("example.org"))).code, "SERVFAIL");
});

test("a task with too many pending queries is refused, and others are answered", async (t) => {
  const silent = await upstream(t, () => null);
  const port = await serve(t, example, [silent]);
  const socket = createSocket("udp4");
  t.teardown(() => socket.close());
  for (let count = 0; count < 140; count += 1) socket.send(question(`n${count}.example.org`), port, address);
  const [reply] = (await once(socket, "message")) as [Buffer];
  t.is(shown(reply).code, "SERVFAIL");
  t.deepEqual(shown(await overUdp(t, port, question("web"))).answers, ["10.0.0.2"]);
});

test("an address in use cannot be listened on", async (t) => {
  const port = await serve(t, example);
  const servers = createNameServers(() => []);
  await t.throwsAsync(servers.open({ address, port, answer: example, onLost: () => {} }), { message: /EADDRINUSE/ });
});
