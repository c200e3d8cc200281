/** Exact decimal numbers: configurations keep them until their target type is known. */

/** digits / 10^scale, in its shortest form: scale 0, or digits not divisible by 10. */
export interface Decimal {
  readonly digits: bigint;
  readonly scale: number;
}

/** Larger exponents are rejected: the number would take more memory than its text. */
const exponentMax = 400;
/** Fractional digits of a division without an exact result: more than any encoding keeps. */
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

/** Parses a decimal such as `-1.5e3`; null for anything else, or a number that is too large. */
export function parseDecimal(text: string): Decimal | null {
  const match = /^([+-]?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,4}))?$/.exec(text.trim());
  if (match === null) return null;
  const [, sign, whole = "", fraction = "", exponent = "0"] = match;
  if (Math.abs(Number(exponent)) > exponentMax) return null;
  const digits = BigInt(whole + fraction);
  return decimal(sign === "-" ? -digits : digits, fraction.length - Number(exponent));
}

/** Converts a JavaScript number by its shortest text; null if it is not finite. */
export function decimalOf(value: number | bigint): Decimal | null {
  return typeof value === "bigint" ? decimal(value) : parseDecimal(String(value));
}

/** The shortest text without an exponent. */
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

/** Null on division by zero. */
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

/** Rounds towards zero. */
export function truncate({ digits, scale }: Decimal): Decimal {
  return decimal(digits / 10n ** BigInt(scale));
}

/** The number as a float64 if it has an exact one, otherwise null. */
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
