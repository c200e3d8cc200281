/** Which rows of a long list are drawn, and scrolling to one of them. */
import { useEffect, useReducer, useRef } from "preact/hooks";
import type { RefObject } from "preact";
import {
  Virtualizer,
  elementScroll,
  observeElementOffset,
  observeElementRect,
  type VirtualItem,
} from "@tanstack/virtual-core";

/** Rows drawn above and below the visible ones, so that a fast scroll shows no holes. */
const overscan = 8;

interface List {
  readonly items: readonly VirtualItem[];
  readonly height: number;
  show(index: number): void;
}

/** `rowHeight` in pixels, as in the style sheet. */
export function useList(scroller: RefObject<HTMLElement | null>, count: number, rowHeight: number): List {
  const [, redraw] = useReducer<number, void>((times) => times + 1, 0);
  const held = useRef<Virtualizer<HTMLElement, HTMLElement> | null>(null);
  const options = {
    count,
    overscan,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => redraw(),
  };
  held.current ??= new Virtualizer<HTMLElement, HTMLElement>(options);
  const virtualizer = held.current;
  virtualizer.setOptions(options);
  useEffect(() => virtualizer._didMount(), []);
  useEffect(() => virtualizer._willUpdate());
  return {
    items: virtualizer.getVirtualItems(),
    height: virtualizer.getTotalSize(),
    show: (index) => virtualizer.scrollToIndex(index),
  };
}
