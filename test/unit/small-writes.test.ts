import { Duplex } from "node:stream";
import test from "ava";
import { writeSmall } from "../../edges/grpc/small-writes.ts";

interface Sent {
  readonly bytes: Buffer;
  /** The socket has accepted it. */
  left(error?: Error): void;
}

/** A socket that accepts a write on command, with its content so far. */
function slowSocket(): { readonly socket: Duplex; readonly sent: Sent[] } {
  const sent: Sent[] = [];
  const socket = new Duplex({
    read: () => {},
    write: (bytes: Buffer, _encoding, done) => void sent.push({ bytes, left: (error) => done(error) }),
  });
  writeSmall(socket);
  return { socket, sent };
}

function numbered(length: number): Buffer {
  return Buffer.from(Array.from({ length }, (_, at) => at % 251));
}

test("a few kilobytes leave in pieces, each after the one before, and count as written after the last", (t) => {
  const { socket, sent } = slowSocket();
  const bytes = numbered(2_500);
  let isWritten = false;
  socket.write(bytes, () => (isWritten = true));
  for (const count of [1, 2, 3]) {
    t.is(sent.length, count);
    t.true((sent[count - 1] as Sent).bytes.length <= 1_000);
    sent[count - 1]?.left();
  }
  t.is(sent.length, 3);
  t.deepEqual(Buffer.concat(sent.map((piece) => piece.bytes)), bytes);
  t.is(socket.writableLength, 0);
  return new Promise<void>((resolve) => setImmediate(resolve)).then(() => t.true(isWritten));
});

test("queued writes leave in their order", (t) => {
  const { socket, sent } = slowSocket();
  const bytes = numbered(3_300);
  for (const [from, to] of [
    [0, 1_200],
    [1_200, 1_300],
    [1_300, 2_700],
    [2_700, 3_300],
  ])
    socket.write(bytes.subarray(from, to));
  for (let at = 0; at < sent.length; at += 1) sent[at]?.left();
  t.deepEqual(Buffer.concat(sent.map((piece) => piece.bytes)), bytes);
  t.true(sent.every((piece) => piece.bytes.length <= 1_000));
});

test("a connection that once sent much gets its writes whole from then on", (t) => {
  const { socket, sent } = slowSocket();
  for (const length of [5_000, 2_000]) {
    socket.write(numbered(length));
    sent.at(-1)?.left();
  }
  t.deepEqual(
    sent.map((piece) => piece.bytes.length),
    [5_000, 2_000],
  );
});

test("a connection with many split writes finally gets them whole", (t) => {
  const { socket, sent } = slowSocket();
  for (let writes = 0; writes < 40; writes += 1) {
    socket.write(numbered(1_500));
    for (let at = 0; at < sent.length; at += 1) sent[at]?.left();
    if (writes < 39) sent.length = 0;
  }
  t.deepEqual(
    sent.map((piece) => piece.bytes.length),
    [1_500],
  );
});

test("a failing piece ends its write with the error, and no further piece is attempted", async (t) => {
  const { socket, sent } = slowSocket();
  const failed = new Promise<Error>((resolve) => socket.once("error", resolve));
  socket.write(numbered(2_500));
  sent[0]?.left(new Error("cut off"));
  t.is((await failed).message, "cut off");
  t.is(sent.length, 1);
});
