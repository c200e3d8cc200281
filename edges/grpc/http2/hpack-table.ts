/** HPACK's two tables of header fields: the static one (RFC 7541, appendix A), and a connection's dynamic one. */

export interface HeaderField {
  readonly name: string;
  readonly value: string;
}

const fields =
  ":authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|:status 204|" +
  ":status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate|" +
  "accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|" +
  "content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type|" +
  "cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|" +
  "last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|retry-after|" +
  "server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate";

export const staticTable: readonly HeaderField[] = fields.split("|").map((text) => {
  const space = text.indexOf(" ");
  return space < 0 ? { name: text, value: "" } : { name: text.slice(0, space), value: text.slice(space + 1) };
});

/** HPACK's overhead per field. */
const overheadBytes = 32;

export function fieldBytes(field: HeaderField): number {
  return field.name.length + field.value.length + overheadBytes;
}

export class DynamicTable {
  /** Newest first. */
  readonly #fields: HeaderField[] = [];
  #bytes = 0;
  #bytesMax: number;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Undefined if the index is invalid. */
  at(index: number): HeaderField | undefined {
    return this.#fields[index];
  }

  add(field: HeaderField): void {
    const bytes = fieldBytes(field);
    this.#evict(this.#bytesMax - bytes);
    // An entry larger than the table empties it and is not added (RFC 7541 §4.4).
    if (bytes > this.#bytesMax) return;
    this.#fields.unshift(field);
    this.#bytes += bytes;
  }

  resize(bytesMax: number): void {
    this.#bytesMax = bytesMax;
    this.#evict(bytesMax);
  }

  #evict(bytesMax: number): void {
    while (this.#bytes > bytesMax) {
      const oldest = this.#fields.pop();
      if (oldest === undefined) return;
      this.#bytes -= fieldBytes(oldest);
    }
  }
}
