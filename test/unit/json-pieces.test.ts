// Large answers of the JSON API are sent piece by piece.
import { Duplex } from "node:stream";
import test from "ava";
import { writeInPieces } from "../../edges/juju/pieces.ts";

interface Taken {
  readonly bytes: Buffer;
  readonly done: (error?: Error | null) => void;
}

/** A socket that accepts nothing until it is told to. */
function socketOf() {
  const taking: Taken[] = [];
  const socket = new Duplex({
    read: () => undefined,
    write: (bytes: Buffer, _encoding, done) => void taking.push({ bytes, done }),
    decodeStrings: false,
  });
  return { socket, taking, pieces: writeInPieces(socket) };
}

test("a large write becomes many small ones, each after the one before was accepted, with all of its bytes", async (t) => {
  const { socket, taking, pieces } = socketOf();
  const text = `${"x".repeat(16_319)}😀${"x".repeat(63_000)}é`;
  let written = 0;
  socket.cork();
  socket.write(Buffer.from([129, 126]));
  socket.write(text, () => (written += 1));
  socket.uncork();
  const got: Buffer[] = [];
  while (taking.length > 0) {
    t.is(taking.length, 1, "one at a time");
    t.is(pieces.takenBytes, Buffer.concat(got).length);
    const { bytes, done } = taking.shift() as Taken;
    t.true(bytes.length <= 16_320);
    got.push(Buffer.from(bytes));
    done();
  }
  t.deepEqual(Buffer.concat(got), Buffer.concat([Buffer.from([129, 126]), Buffer.from(text)]));
  t.is(got[0]?.length, 4_000, "small writes go together with what follows them");
  t.is(got.length, 6);
  t.is(pieces.takenBytes, 0);
  await new Promise((resolve) => setImmediate(resolve));
  t.is(written, 1);
});

test("ten thousand pieces accepted at once do not grow the stack", async (t) => {
  let taken = 0;
  const socket = new Duplex({
    read: () => undefined,
    write: (bytes: Buffer, _encoding, done) => {
      taken += bytes.length;
      done();
    },
  });
  writeInPieces(socket);
  await new Promise<void>((resolve) => void socket.write(Buffer.alloc(10_000 * 8_192), () => resolve()));
  t.is(taken, 10_000 * 8_192);
});

test("a write that fails halfway fails, and its rest is not attempted", async (t) => {
  const { socket, taking } = socketOf();
  const failed = new Promise<Error>((resolve) => socket.once("error", resolve));
  socket.write(Buffer.alloc(100_000));
  taking.shift()?.done();
  taking.shift()?.done(new Error("broken pipe"));
  t.is((await failed).message, "broken pipe");
  t.is(taking.length, 0);
});
