/** Reads the attributes of names (RFC 5280 §4.1.2.4). */
import { DerError, DerReader, Tag, type Element } from "./der.ts";

/** Contents of the OBJECT IDENTIFIER of an attribute's type. */
export const attributeType = {
  commonName: Buffer.from([0x55, 0x04, 0x03]),
  organization: Buffer.from([0x55, 0x04, 0x0a]),
  organizationalUnit: Buffer.from([0x55, 0x04, 0x0b]),
} as const;

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const utf16 = new TextDecoder("utf-16be", { fatal: true, ignoreBOM: true });

function utf32(contents: Uint8Array): string {
  const view = new DataView(contents.buffer, contents.byteOffset, contents.length);
  let text = "";
  for (let at = 0; at < contents.length; at += 4) text += String.fromCodePoint(view.getUint32(at));
  return text;
}

/** The text of a string in any of ASN.1's types that names use. Throws on other types and on invalid encodings. */
function textOf(tag: number, contents: Uint8Array): string {
  switch (tag) {
    case Tag.utf8String:
      return utf8.decode(contents);
    case Tag.bmpString:
      return utf16.decode(contents);
    case Tag.universalString:
      return utf32(contents);
    case Tag.printableString:
    case Tag.teletexString: // Latin-1 in practice, as OpenSSL reads it
    case Tag.ia5String:
    case Tag.numericString:
      return Buffer.from(contents).toString("latin1");
    default:
      throw new DerError(`expected a string, found tag ${tag}`);
  }
}

/** The attributes of a Name (DER), in order: the contents of the type's OBJECT IDENTIFIER, and the value. Throws DerError. */
export function* attributesOf(nameDer: Uint8Array): Generator<{ readonly type: Uint8Array; readonly value: Element }> {
  const sets = new DerReader(nameDer).enter();
  while (!sets.isAtEnd) {
    const set = sets.enter(Tag.set);
    while (!set.isAtEnd) {
      const attribute = set.enter();
      const type = attribute.read(Tag.oid).contents;
      const value = attribute.read();
      attribute.finish();
      yield { type, value };
    }
  }
}

/**
 * The text of the first attribute of a type in a Name (DER); empty if there is none. Unlike `X509Certificate.subject`, it has no
 * escapes, and an empty name or a set of several attributes is read too. Throws on invalid text.
 */
export function firstAttribute(nameDer: Uint8Array, wanted: Buffer): string {
  for (const { type, value } of attributesOf(nameDer))
    if (wanted.equals(type)) return textOf(value.tag, value.contents);
  return "";
}
