/** Exact decimal numbers: what configurations hold, before it is known what they become. */

/** digits / 10^scale, in its shortest form: scale 0, or digits not divisible by 10. */
export interface Decimal {
  readonly digits: bigint;
  readonly scale: number;
}

/** Beyond this exponent a number would cost more memory than its text. */
const exponentMax = 400;
/** Digits behind the point of a division that does not come out even: more than any encoding keeps. */
const divisionScale = 150;

export function decimal(digits: bigint, scale = 0): Decimal {
  let shortest = digits;
  let left = scale;
  if (left < 0) {
    shortest *= 10n ** BigInt(-left);
    left = 0;
  }
  while (left > 0 && shortest % 10n === 0n) {
    shortest /= 10n;
    left -= 1;
  }
  return { digits: shortest, scale: left };
}

/** A decimal's text, such as `-1.5e3`; null for anything else, or one too large. */
export function parseDecimal(text: string): Decimal | null {
  const match = /^([+-]?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,4}))?$/.exec(text.trim());
  if (match === null) return null;
  const [, sign, whole = "", fraction = "", exponent = "0"] = match;
  if (Math.abs(Number(exponent)) > exponentMax) return null;
  const digits = BigInt(whole + fraction);
  return decimal(sign === "-" ? -digits : digits, fraction.length - Number(exponent));
}

/** Of a JavaScript number, its shortest text; null for one that is not finite. */
export function decimalOf(value: number | bigint): Decimal | null {
  return typeof value === "bigint" ? decimal(value) : parseDecimal(String(value));
}

/** Without an exponent, as short as it can be. */
export function decimalText({ digits, scale }: Decimal): string {
  if (scale === 0) return String(digits);
  const text = String(digits < 0n ? -digits : digits).padStart(scale + 1, "0");
  return `${digits < 0n ? "-" : ""}${text.slice(0, -scale)}.${text.slice(-scale)}`;
}

export function compareDecimals(left: Decimal, right: Decimal): number {
  const scale = Math.max(left.scale, right.scale);
  const difference = scaled(left, scale) - scaled(right, scale);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

function scaled({ digits, scale }: Decimal, to: number): bigint {
  return digits * 10n ** BigInt(to - scale);
}

export type Operator = "+" | "-" | "*" | "/" | "%";

/** Null for a division by zero. */
export function calculate(operator: Operator, left: Decimal, right: Decimal): Decimal | null {
  const scale = Math.max(left.scale, right.scale);
  switch (operator) {
    case "+":
      return decimal(scaled(left, scale) + scaled(right, scale), scale);
    case "-":
      return decimal(scaled(left, scale) - scaled(right, scale), scale);
    case "*":
      return decimal(left.digits * right.digits, left.scale + right.scale);
    case "/":
      if (right.digits === 0n) return null;
      return decimal((scaled(left, scale) * 10n ** BigInt(divisionScale)) / scaled(right, scale), divisionScale);
    case "%":
      if (right.digits === 0n) return null;
      return decimal(scaled(left, scale) % scaled(right, scale), scale);
  }
}

/** Towards zero. */
export function truncate({ digits, scale }: Decimal): Decimal {
  return decimal(digits / 10n ** BigInt(scale));
}

/** The number as a float64, when it is one exactly. */
export function exactFloat({ digits, scale }: Decimal): number | null {
  const fives = 5n ** BigInt(scale);
  if (digits % fives !== 0n) return null;
  let odd = digits / fives;
  if (odd < 0n) odd = -odd;
  while (odd !== 0n && odd % 2n === 0n) odd /= 2n;
  if (odd >= 2n ** 53n) return null;
  const value = Number(decimalText({ digits, scale }));
  return Number.isFinite(value) && (value !== 0 || digits === 0n) ? value : null;
}
