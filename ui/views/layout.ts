/** Drawings of charts, laid out by ELK in a worker, each once. */
import ELK, { type ElkNode } from "elkjs/lib/elk-api.js";
import type { ChartDefinition } from "../../proto/feed/chart-definition.ts";
import { drawingOf, graphOf, type Drawing, type Graph } from "../model/graph.ts";

let elk: InstanceType<typeof ELK> | null = null;
const drawings = new Map<string, Promise<Drawing>>();

export function drawingFor(chart: ChartDefinition): Promise<Drawing> {
  let drawing = drawings.get(chart.id);
  if (drawing === undefined) {
    elk ??= new ELK({ workerFactory: () => new Worker("layout.js") });
    drawing = elk
      .layout(graphOf(chart) as unknown as ElkNode)
      .then((laid) => drawingOf(laid as unknown as Graph, chart));
    drawings.set(chart.id, drawing);
  }
  return drawing;
}
