'use strict';
// An extension host must not outlive its server. The native module watches from a thread of its own; so does this one,
// in a worker, which also works while the main thread is blocked.
const { Worker } = require('node:worker_threads');

const watch = `
  const { parent, self } = require('node:worker_threads').workerData;
  const timer = setInterval(() => {
    try { process.kill(parent, 0); } catch (error) {
      if (error.code !== 'ESRCH') return;
      clearInterval(timer);
      setTimeout(() => process.kill(self, 'SIGKILL'), 5000); // the time the native module gives for a clean end
    }
  }, 1000);`;

let watching = false;
exports.start = (parent) => {
  if (watching) throw new Error('already watching a process');
  watching = true;
  new Worker(watch, { eval: true, workerData: { parent, self: process.pid } }).unref();
};
exports.exit = (code) => process.exit(code ?? 0);
