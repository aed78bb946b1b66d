import type { SandboxPurpose } from './port.ts';

/** Keys of the labels that everything of Escrow in an engine carries. */
export const labelKeys = {
  product: 'escrow.product',
  /** Random id of the Kernel's home folder: what makes a container *ours*, not only Escrow's. */
  home: 'escrow.home',
  instance: 'escrow.instance',
  epoch: 'escrow.epoch',
  session: 'escrow.session',
  owner: 'escrow.owner',
  purpose: 'escrow.purpose',
  profile: 'escrow.profile',
  /** Of images: `base`, `steps` (a base after opaque steps), `flat` (without its configuration), `dependencies`, `prepared` (with the executor). */
  image: 'escrow.image',
  base: 'escrow.base',
  executor: 'escrow.executor',
  node: 'escrow.node',
  /** Digest of lock files, manifests and platform whose packages the image holds; absent where it holds none. */
  dependencies: 'escrow.dependencies',
  /** Digest of the opaque steps that were run over the base; absent where there were none. */
  steps: 'escrow.steps',
  /** Of volumes (Podman): the container that they belong to. */
  container: 'escrow.container',
  /** Version of what lies where in the image. */
  layout: 'escrow.layout',
} as const;

export const productLabel = 'escrow';

/** Rises when the files that preparation puts into an image change their place, mode or form. */
export const imageLayout = '2';

export type Labels = Readonly<Record<string, string>>;

export interface ContainerOwner {
  readonly homeId: string;
  readonly instanceId: string;
  readonly epoch: number;
  readonly session: string | null;
  readonly owner: string;
  readonly purpose: SandboxPurpose;
  readonly profile: string;
}

export function containerLabels(owner: ContainerOwner): Labels {
  return {
    [labelKeys.product]: productLabel,
    [labelKeys.home]: owner.homeId,
    [labelKeys.instance]: owner.instanceId,
    [labelKeys.epoch]: String(owner.epoch),
    [labelKeys.owner]: owner.owner,
    [labelKeys.purpose]: owner.purpose,
    [labelKeys.profile]: owner.profile,
    ...(owner.session === null ? {} : { [labelKeys.session]: owner.session }),
  };
}

/** Product and home must both match: another home's containers are Escrow's but not ours. */
export function isOurs(labels: Labels, homeId: string): boolean {
  return labels[labelKeys.product] === productLabel && labels[labelKeys.home] === homeId;
}

export function purposeOf(labels: Labels): SandboxPurpose | null {
  const purpose = labels[labelKeys.purpose];
  return purpose === 'attempt' || purpose === 'verification' || purpose === 'baseline' ? purpose : null;
}
