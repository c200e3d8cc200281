/** The names of protocols in rules and set members. */

const numbers: Readonly<Record<string, number>> = {
  icmp: 1,
  tcp: 6,
  udp: 17,
  dccp: 33,
  gre: 47,
  esp: 50,
  ah: 51,
  icmpv6: 58,
  sctp: 132,
  udplite: 136,
};

/** Protocols whose header starts with two ports. */
export const portProtocols: readonly number[] = [6, 17, 33, 132, 136];

/** From a name or digits, 1-255; null for anything else. */
export function protocolNumber(text: string): number | null {
  const known = Object.hasOwn(numbers, text) ? numbers[text] : undefined;
  if (known !== undefined) return known;
  return /^\d{1,3}$/.test(text) && Number(text) >= 1 && Number(text) <= 255 ? Number(text) : null;
}
