/** Splits a TCP stream into DNS messages, each preceded by its length in two bytes (RFC 1035, §4.2.2). */
export class TcpMessages {
  #rest: Buffer = Buffer.alloc(0);

  /** The messages that `data` completes. Keeps less than one message (64 KiB). */
  take(data: Buffer): readonly Buffer[] {
    let rest = this.#rest.length === 0 ? data : Buffer.concat([this.#rest, data]);
    const messages: Buffer[] = [];
    while (rest.length >= 2) {
      const end = 2 + rest.readUInt16BE(0);
      if (rest.length < end) break;
      messages.push(rest.subarray(2, end));
      rest = rest.subarray(end);
    }
    this.#rest = rest;
    return messages;
  }
}

export function tcpMessage(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}
