/**
 * Finds sentences in docs, comments and strings that read as if translated word for word. Each rule is narrow, with samples
 * that it must find and samples that it must not find; `docs/style.md` says how to write instead.
 */

interface Passage {
  /** Line of the passage's beginning, from 1. */
  readonly line: number;
  readonly kind: "comment" | "string" | "page";
  /** Prose in one line; quoted code is replaced by `_`. */
  readonly text: string;
}

interface Rule {
  readonly name: string;
  /** Tested against each sentence. */
  readonly pattern: RegExp;
  /** What to write instead. */
  readonly instead: string;
  readonly found: readonly string[];
  readonly ignored: readonly string[];
}

export const rules: readonly Rule[] = [
  {
    name: "Of at the beginning",
    pattern: /^[Oo]f (?!course\b|these,|(?:one|several|the|three|two)\b[^,.]*, )(?:\S+ ){2}/,
    instead: "begin with the subject",
    found: [
      "Of a schedule is refused what could never work.",
      "Of all live actors, in the order of their starts.",
      "of what is not said the node's own counts",
      "Of the messages that a client sends each is answered.",
    ],
    ignored: [
      "Of course it is.",
      "Of these, three are left.",
      "Of two saves, the later one wins.",
      "The order of all actors.",
      "of the node",
      "Official images are signed by Docker.",
    ],
  },
  {
    name: "What, Who or Whoever at the beginning",
    pattern: /^(?:What|what|Who|who|Whom|Whoever|whoever) (?!else\b|to\b)[^?]*(?:[^?"]|\?.+)$/,
    instead: "name the thing: a clause is no subject or title",
    found: [
      "What nobody calls is gone from the invariants' file",
      "Who is logged in stays so.",
      "who is turned away costs no work",
      "What a login of that version returns.",
      "Whoever joins gets a token of the cluster.",
    ],
    ignored: [
      "What does the task do?",
      "What to do on failure",
      "what",
      "Whole numbers are accepted.",
      "It reports what it found.",
      "who: the user",
    ],
  },
  {
    name: "Whether as a subject",
    pattern: new RegExp(
      String.raw`^Whether .* (?:is|are|was|were) (?:not |only )?` +
        String.raw`(?:asked|clear|decided|found|known|looked|said|seen|sure|told|unknown)\b(?! to\b)`,
    ),
    instead: 'say "it is unknown whether …", or name who decides',
    found: [
      "Whether the task runs is not known; the driver is awaited.",
      "Whether a machine lives is told by its session.",
    ],
    ignored: [
      "Whether the node is ready.",
      "Whether the task is known to the driver.",
      "It is unknown whether the task runs.",
    ],
  },
  {
    name: "That as a subject",
    pattern: /^[Tt]hat (?:an?|each|every|he|it|no|nobody|nothing|she|some|somebody|the|there|they|we|what|who)\b/,
    instead: "begin with the subject of the clause",
    found: ["That the node is gone is reported.", "that it is cut off", "That somebody reads is not sure."],
    ignored: ["That node is gone.", "That is all.", "That way, the others wait.", "It says that the node is gone."],
  },
  {
    name: "is no …",
    pattern: new RegExp(
      String.raw`(?<!\b[Tt]here )(?<!\b[Tt]here (?:also|still) )\b(?:is|are|was|were) no ` +
        String.raw`(?!(?:better|different|doubt|earlier|fewer|greater|higher|larger|later|less|longer|lower|more|newer|` +
        String.raw`older|other|shorter|smaller|such|use|worse)\b)[A-Za-z]+`,
    ),
    instead: '"is not a …"',
    found: ["'x' is no traffic", "that is no unlock key", "what is no JSON is refused", "these are no services"],
    ignored: [
      "there is no such node",
      "it is no longer there",
      "There are no nodes.",
      "it is no more than 5",
      "There is still no leader.",
    ],
  },
  {
    name: "has none",
    pattern: /\b(?:that|what|which|who|whoever) (?:has|have|had) none\b/,
    instead: '"without …", or say what is missing',
    found: ["a node that has none is skipped", "clients that have none"],
    ignored: ["empty if the request has none", "there are none"],
  },
  {
    name: "that is to",
    pattern: /\b(?:that|which|who|what) (?:is|are|was|were) to (?!say\b|the\b)[a-z]+/,
    instead: '"that will …", "that should …", or the plain verb',
    found: ["the node that is to run it", "services which are to be removed", "whoever who is to answer"],
    ignored: ["that is to say, never", "The aim is to find it.", "the one that is to the left"],
  },
  {
    name: "is told",
    pattern: /\b(?:am|is|are|was|were|be|been|being) told\b(?! (?:apart|from|that|to)\b)/,
    instead: '"gets", "receives", "is notified", "is reported"',
    found: ["nobody is told.", "nodes are told only once", "all that it has been told"],
    ignored: [
      "it told the node",
      "they are told apart by their ids",
      "The node is told to stop.",
      "the user was told that it failed",
    ],
  },
  {
    name: "has it",
    pattern: /\b(?:[Aa]s|[Ll]ike|what|which) (?:\S+ ){1,4}(?:has|have|had) it\b/,
    instead: "name what it has, or say where it is stored",
    found: ["as the process has it", "The names as the cluster has it by then."],
    ignored: ["every manager has it", "as it has its own", "Later versions have it in ModelManager."],
  },
  {
    name: "as it is",
    pattern: /\b[Aa]s (?:it|they|that|this) (?:is|are|stands?)(?=[.,;:)!]|$| (?:by )?now\b| by then\b| there\b)/,
    instead: '"unchanged", "the current …"',
    found: ["the value stays as it is.", "Written as they are, without a check.", "the spec as it is by then"],
    ignored: ["as it is not there", "as it is large, it is split", "Show the cluster as it was."],
  },
  {
    name: "is so",
    pattern: /\b(?:is|are|was|were|be|been|stays?|remains?) so(?=[.,;:)!]|$| (?:already|now|today|for as long)\b)/,
    instead: "repeat the adjective or the verb",
    found: ["who is logged in stays so", "what is so already is left alone", "It has always been so."],
    ignored: ["it is so large that it fails", "and so on", "is it so?"],
  },
  {
    name: "looks at",
    pattern: /\b(?:looks|looked|looking) at\b/,
    instead: '"checks", "reads", "examines"',
    found: ["the leader looks at it", "Everything is looked at once.", "by looking at its tasks"],
    ignored: ["look at the trace", "it looks for a node", "looks attractive"],
  },
  {
    name: "takes … back",
    pattern: /\b(?:[Tt]akes?|took|taken|[Tt]aking)(?: [a-z]+){1,4} back\b|\b(?:takes?|took|taken|taking) back\b/,
    instead: '"reverts", "rolls back", "withdraws"',
    found: ["Takes a service back to the spec before its present one.", "what was taken back"],
    ignored: ["it goes back", "takes a while", "The callback takes a node."],
  },
  {
    name: "brings … to",
    pattern:
      /\b(?:[Bb]rings?|brought|[Bb]ringing)(?: [a-z]+){1,4} to (?!an end\b|light\b)|\bbrought (?:to|up to date)\b/,
    instead: '"updates", "deploys", "moves"',
    found: ["Brings the cluster to what Compose files say", "the nodes are brought up to date"],
    ignored: ["brings a plugin", "it brings the run to an end", "bring your own"],
  },
  {
    name: "only at most",
    pattern: /^(?:[Aa]t most|[Aa]t least)(?: \S+)?$/,
    instead: "say of what this is the maximum or minimum",
    found: ["at most", "at least 5", "At most"],
    ignored: ["at most 5 nodes", "Maximum number of nodes"],
  },
  {
    name: "so many",
    pattern: /\b(?:after|at|by|costs?|[Ee]ach|[Ee]very|for|in|of|over|takes?|than|within) so many\b(?!.*\bthat\b)/,
    instead: '"this many", or name the number',
    found: ["spread over so many milliseconds.", "Every so many versions are hashed."],
    ignored: ["there are so many of them", "in so many that it fails"],
  },
];

/** The sentences of a passage; a label such as `S27:` and the marker of a list do not belong to one. */
export function sentencesOf(text: string): readonly string[] {
  return text
    .split(/(?<=[.!?:])\s+(?=[A-Z"`'(])|\s+·\s+/)
    .map((sentence) =>
      sentence.replace(/^(?:[-*+]|\d+\.)\s+/, "").replace(/^[A-Z]{1,3}\d+[a-z]?(?:, [A-Z]+\d+)*:(?: |$)/, ""),
    )
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence !== "");
}

/** The rules that a passage breaks, each with its sentence. */
export function breachesIn(text: string): readonly { readonly rule: Rule; readonly sentence: string }[] {
  return sentencesOf(text).flatMap((sentence) =>
    rules.filter(({ pattern }) => pattern.test(sentence)).map((rule) => ({ rule, sentence })),
  );
}

/** Code and addresses within prose. */
const withoutCode = (text: string): string =>
  text
    .replaceAll(/`[^`]*`/g, "_")
    .replaceAll(/\]\([^)\s]*\)/g, "]")
    .replaceAll(/https?:\/\/\S+/g, "_")
    .replaceAll(/\s+/g, " ")
    .trim();

/** Paragraphs, items and cells of a Markdown page; headings, also those of tables, and code are left out. */
export function passagesOfPage(page: string): readonly Passage[] {
  const passages: Passage[] = [];
  let open: { line: number; parts: string[] } | null = null;
  let isCode = false;
  const close = (): void => {
    if (open !== null) passages.push({ line: open.line, kind: "page", text: withoutCode(open.parts.join(" ")) });
    open = null;
  };
  const isRule = (text: string | undefined): boolean => /^\s*\|[-:| ]*-[-:| ]*$/.test(text ?? "");
  page.split("\n").forEach((text, at, all) => {
    const line = at + 1;
    if (/^\s*(?:```|~~~)/.test(text)) {
      close();
      isCode = !isCode;
    } else if (isCode) return;
    else if (/^\s*\|/.test(text) && isRule(all[at + 1])) close();
    else if (/^\s*$|^\s*#|^\s*\|?[-:| ]+\|?\s*$/.test(text)) close();
    else if (/^\s*\|/.test(text)) {
      close();
      for (const cell of withoutCode(text).split("|")) passages.push({ line, kind: "page", text: cell.trim() });
    } else {
      if (/^\s*(?:[-*+]|\d+\.) /.test(text)) close();
      open ??= { line, parts: [] };
      open.parts.push(text.trim());
    }
  });
  close();
  return passages.filter(({ text }) => text !== "");
}

/** Strings of fewer words are names and fragments. */
const wordsMin = 4;
const isProse = (text: string): boolean => !/^\s/.test(text) && text.trim().split(/\s+/).length >= wordsMin;

/** Comment lines of a script or configuration file, in whose language `#` begins a comment. */
export function passagesOfScript(script: string): readonly Passage[] {
  const passages: Passage[] = [];
  let open: { line: number; parts: string[] } | null = null;
  const close = (): void => {
    if (open !== null) passages.push({ line: open.line, kind: "comment", text: withoutCode(open.parts.join(" ")) });
    open = null;
  };
  script.split("\n").forEach((text, at) => {
    const [, comment] = /^\s*# (.*)$/.exec(text) ?? [];
    if (comment === undefined) return close();
    open ??= { line: at + 1, parts: [] };
    open.parts.push(comment.trim());
  });
  close();
  return passages;
}

/** Comments, and strings of several words, of a source file in TypeScript, JavaScript, Go or Protocol Buffers. */
export function passagesOfSource(source: string): readonly Passage[] {
  const passages: Passage[] = [];
  let line = 1;
  let at = 0;
  /** The last token that is neither space nor comment, which says whether a slash begins a regular expression. */
  let before = "";
  let lines: { line: number; last: number; parts: string[] } | null = null;
  const closeLines = (): void => {
    if (lines !== null) passages.push({ line: lines.line, kind: "comment", text: withoutCode(lines.parts.join(" ")) });
    lines = null;
  };
  const count = (text: string): void => void (line += text.split("\n").length - 1);
  /** Braces that are open in code within templates. */
  const braces: number[] = [];
  let template: { line: number; text: string; isOpen: boolean }[] = [];
  /** Reads a template's text up to its end, or to code within it. */
  const readTemplate = (): void => {
    const current = template.at(-1);
    if (current === undefined) return;
    while (at < source.length) {
      const char = source[at] ?? "";
      if (char === "\\") {
        current.text += source[at + 1] === "n" ? "\n" : (source[at + 1] ?? "");
        count(source.slice(at, at + 2));
        at += 2;
      } else if (char === "`") {
        at += 1;
        template = template.slice(0, -1);
        if (isProse(current.text))
          passages.push({ line: current.line, kind: "string", text: withoutCode(current.text) });
        before = "`";
        return;
      } else if (char === "$" && source[at + 1] === "{") {
        at += 2;
        current.text += "_";
        braces.push(0);
        before = "{";
        return;
      } else {
        current.text += char;
        count(char);
        at += 1;
      }
    }
  };
  while (at < source.length) {
    const rest = source.slice(at, at + 2);
    const char = source[at] ?? "";
    if (char === "\n" || char === " " || char === "\t" || char === "\r") {
      count(char);
      at += 1;
    } else if (rest === "//") {
      const end = source.indexOf("\n", at);
      const text = source.slice(at + 2, end < 0 ? source.length : end).trim();
      if (lines !== null && (lines.last !== line - 1 || text === "")) closeLines();
      if (text !== "") {
        lines ??= { line, last: line, parts: [] };
        lines.last = line;
        lines.parts.push(text);
      }
      at = end < 0 ? source.length : end;
    } else if (rest === "/*") {
      closeLines();
      const end = source.indexOf("*/", at);
      const text = source.slice(at + 2, end < 0 ? source.length : end);
      let from = line;
      // Paragraphs and labelled items are passages of their own.
      for (const paragraph of text
        .replaceAll(/^[ \t]*\*(?!\/)/gm, "")
        .split(/\n(?=\s*\n|\s*(?:-|\d\.|[A-Z]{1,3}\d+:) )/)) {
        const prose = withoutCode(paragraph.replace(/^\s*\*/, ""));
        const skipped = /^\s*/.exec(paragraph)?.[0].split("\n").length ?? 1;
        if (prose !== "") passages.push({ line: from + skipped - 1, kind: "comment", text: prose });
        from += paragraph.split("\n").length;
      }
      count(text);
      at = end < 0 ? source.length : end + 2;
    } else {
      closeLines();
      if (char === '"' || char === "'") {
        const [whole = char] = /^(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')/.exec(source.slice(at)) ?? [];
        const text = whole.slice(1, -1).replaceAll(/\\(.)/g, "$1");
        if (before !== "+" && isProse(text)) passages.push({ line, kind: "string", text: withoutCode(text) });
        at += whole.length;
        before = '"';
      } else if (char === "`") {
        template.push({ line, text: "", isOpen: true });
        at += 1;
        readTemplate();
      } else if (char === "/" && /^(?:[(,=:[!&|?{};+\-*%<>~^]|return|typeof|case|)$/.test(before)) {
        const [whole = char] = /^\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/.exec(source.slice(at)) ?? [];
        at += whole.length;
        before = "/";
      } else if (/[\w$]/.test(char)) {
        const [word = char] = /^[\w$]+/.exec(source.slice(at, at + 100)) ?? [];
        at += word.length;
        before = word;
      } else {
        at += 1;
        before = char;
        const depth = braces.at(-1);
        if (depth !== undefined && char === "{") braces[braces.length - 1] = depth + 1;
        else if (depth !== undefined && char === "}") {
          if (depth > 0) braces[braces.length - 1] = depth - 1;
          else {
            braces.pop();
            readTemplate();
          }
        }
      }
    }
  }
  closeLines();
  return passages;
}
