/**
 * xterm.js under the page's policy, which allows no inline styles: its `style` elements, and the `style` attributes of its
 * characters, are written through the CSS object model, which the policy allows.
 */
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";

/** A stand-in for a `style` element: its text goes to a style sheet of the document. */
function styleElement(create: typeof document.createElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const element = create("span");
  element.hidden = true;
  Object.defineProperty(element, "textContent", {
    set(text: string) {
      sheet.replaceSync(text);
    },
  });
  Object.defineProperty(element, "remove", {
    value() {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
      Element.prototype.remove.call(element);
    },
  });
  return element;
}

/** xterm.js asks the global document, also where its option `documentOverride` names another. Nothing else here makes `style` elements. */
function allowStyles(): void {
  const create = document.createElement.bind(document);
  document.createElement = ((tag: string, options?: ElementCreationOptions) =>
    tag === "style" ? styleElement(create) : create(tag, options)) as typeof document.createElement;
  HTMLSpanElement.prototype.setAttribute = function setAttribute(name: string, value: string): void {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };
}

allowStyles();

interface Size {
  readonly width: number;
  readonly height: number;
}

/** The terminal in an element; it follows the element's size. */
export class Screen {
  readonly #terminal: Terminal;
  readonly #fit = new FitAddon();
  readonly #resizes: ResizeObserver;

  constructor(element: HTMLElement) {
    const style = getComputedStyle(element);
    this.#terminal = new Terminal({
      fontFamily: style.fontFamily,
      fontSize: Number.parseFloat(style.fontSize),
      theme: { background: style.backgroundColor, foreground: style.color, cursor: style.color },
      // A reader's own screen reader follows the lines.
      screenReaderMode: true,
      cursorBlink: !window.matchMedia("(prefers-reduced-motion: reduce)").matches,
    });
    this.#terminal.loadAddon(this.#fit);
    this.#terminal.open(element);
    this.#fit.fit();
    this.#terminal.focus();
    this.#resizes = new ResizeObserver(() => this.#fit.fit());
    this.#resizes.observe(element);
  }

  get size(): Size {
    return { width: this.#terminal.cols, height: this.#terminal.rows };
  }

  write(bytes: Uint8Array): void {
    this.#terminal.write(bytes);
  }

  onInput(listener: (bytes: Uint8Array) => void): void {
    const encoder = new TextEncoder();
    this.#terminal.onData((text) => listener(encoder.encode(text)));
    this.#terminal.onBinary((text) => listener(Uint8Array.from(text, (character) => character.charCodeAt(0))));
  }

  onResize(listener: (size: Size) => void): void {
    this.#terminal.onResize(({ cols, rows }) => listener({ width: cols, height: rows }));
  }

  close(): void {
    this.#resizes.disconnect();
    this.#terminal.dispose();
  }
}
