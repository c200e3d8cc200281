/** Names shown in one event; the others are counted. */
const namesMax = 5;

/** Such as `a, b and 3 more`. `none`: the text without names. */
export function listed(names: readonly string[], none: string): string {
  const more = names.length - namesMax;
  if (more > 0) return `${names.slice(0, namesMax).join(", ")} and ${more} more`;
  return names.length === 0 ? none : names.join(", ");
}
