/** Reads the only frame of a whole text message, as a client would. */
export function textOfFrame(frame: Buffer): string {
  const [first, short = 0] = frame;
  if (first !== 0x81 || short > 127) throw new Error("not one unmasked text message");
  const start = short < 126 ? 2 : short === 126 ? 4 : 10;
  const length = short < 126 ? short : short === 126 ? frame.readUInt16BE(2) : Number(frame.readBigUInt64BE(2));
  if (frame.length - start !== length) throw new Error(`${frame.length - start} bytes where the header says ${length}`);
  return frame.toString("utf8", start);
}
