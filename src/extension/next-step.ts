import type { Fault } from './fault-words.ts';
import { commands, settings } from './ids.ts';
import type { Localize } from './trees/tree-node.ts';

export interface NextStep {
  /** Name of the button. */
  readonly title: string;
  readonly command: string;
  readonly argument?: string;
}

/** The step that the words of an error name, where a command does it: a button of its notification. */
export function nextStep({ code, details }: Pick<Fault, 'code' | 'details'>, t: Localize): NextStep | undefined {
  const setting = (argument: string): NextStep => ({
    title: t('Open Settings'),
    command: 'workbench.action.openSettings',
    argument,
  });
  switch (code) {
    case 'NoKernel':
      return 'nodePath' in details
        ? setting(settings.kernelNode)
        : { title: t('Start Kernel'), command: commands.startKernel };
    case 'KernelDraining':
    case 'AnotherKernel':
      return { title: t('Start Kernel'), command: commands.startKernel };
    case 'EngineUnavailable':
    case 'InferenceUnavailable':
    case 'InferenceTooOld':
      return { title: t('Check Health'), command: commands.doctor };
    case 'EngineNotApproved':
      return { title: t('Approve Server…'), command: commands.approveEngine };
    case 'ImageUnavailable':
    case 'ImageNotApproved':
      return { title: t('Prepare Image…'), command: commands.prepareImage };
    case 'ImageChanged':
      return 'recorded' in details
        ? { title: t('Prune Images…'), command: commands.pruneImages }
        : { title: t('Prepare Image…'), command: commands.prepareImage };
    case 'LimitNotInForce':
      return { title: t('Check Health'), command: commands.doctor };
    case 'ExecutionDisabled':
      return setting(settings.executionEnabled);
    case 'RuntimeTooOld':
      return setting(settings.kernelNode);
    case 'NotController':
    case 'StaleAuthority':
      return { title: t('Attach…'), command: commands.attachSession };
    case 'BudgetSpent':
      return { title: t('Allow More Attempts…'), command: commands.extendBudget };
    case 'NotVerified':
    case 'OutOfScope':
      return { title: t('Show Evidence'), command: commands.showEvidence };
    case 'InvalidContract':
      return { title: t('Check Contract'), command: commands.checkContract };
    case 'ContractNotFrozen':
      return { title: t('Freeze Contract'), command: commands.freezeContract };
    case 'BaselineMissing':
    case 'BaselineNotDiscriminating':
      return { title: t('Check Baseline'), command: commands.runBaseline };
    case 'NotFound':
    case 'WrongState':
      return { title: t('Refresh'), command: commands.refresh };
    case 'VersionMismatch':
    case 'HandshakeRefused':
    case 'StorageTooNew':
      return { title: t('Reload Window'), command: 'workbench.action.reloadWindow' };
    default:
      // It kept the Kernel from starting; once it is mended, that is what there is to do.
      return details['link'] === 'start' ? { title: t('Start Kernel'), command: commands.startKernel } : undefined;
  }
}
