import * as z from 'zod';
import { machineStream, type Store } from '../store/port.ts';

/** Of `container.salvaged`: what later readers need. Records of before there were tries and faults have neither. */
const Salvaged = z.object({
  name: z.string(),
  engineId: z.string(),
  files: z.array(z.object({ path: z.string(), sha256: z.string(), size: z.number() })),
  fault: z.string().nullable().default(null),
});

/** A container that no record knew, and what of it is kept. `fault`: why that may not be all. */
export type SalvagedContainer = z.infer<typeof Salvaged> & { readonly at: number };

/** What has been read out of containers that no record knew, oldest first. */
export function salvagedContainers(store: Store): readonly SalvagedContainer[] {
  return store.load(machineStream).flatMap(({ type, at, data }) => {
    const parsed = type === 'container.salvaged' ? Salvaged.safeParse(data).data : undefined;
    return parsed === undefined ? [] : [{ ...parsed, at }];
  });
}
