// What runs inside the extension host of a desktop VS Code, started by run.ts. Its one export is what VS Code calls.
const assert = require('node:assert/strict');
const { existsSync } = require('node:fs');
const path = require('node:path');
const vscode = require('vscode');

/** Resolves when `there` gives something; `event` says when to look again. */
function when(what, event, there) {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`not in two minutes: ${what}`)), 120_000);
    const subscription = event(look);
    function look() {
      const found = there();
      if (found === undefined) return;
      clearTimeout(late);
      subscription.dispose();
      resolve(found);
    }
    look();
  });
}

exports.run = async () => {
  const extension = vscode.extensions.getExtension('escrow.escrow');
  assert.ok(extension, 'the extension is there');
  const home = process.env.ESCROW_HOME ?? '';
  assert.ok(!existsSync(path.join(home, 'endpoint.json')), 'nothing starts before somebody looks');

  // A contract file is opened: the extension wakes up, starts a Kernel, and the Kernel speaks of the file.
  const [folder] = vscode.workspace.workspaceFolders ?? [];
  assert.ok(folder, 'the folder of the example is open');
  const uri = vscode.Uri.joinPath(folder.uri, 'broken.contract.jsonc');
  await vscode.window.showTextDocument(uri);
  const remarks = await when('the Kernel remarks on the contract', vscode.languages.onDidChangeDiagnostics, () => {
    const found = vscode.languages.getDiagnostics(uri);
    return found.length > 0 ? found : undefined;
  });
  assert.ok(
    remarks.some(({ message }) => message.includes('writable')),
    remarks.map(({ message }) => message).join('; '),
  );
  assert.ok(extension.isActive);
  assert.ok(existsSync(path.join(home, 'endpoint.json')), 'a Kernel listens');

  const known = new Set(await vscode.commands.getCommands(true));
  const declared = extension.packageJSON.contributes.commands.map(({ command }) => command);
  assert.deepEqual(
    declared.filter((command) => !known.has(command)),
    [],
    'each command has a handler',
  );
  await vscode.commands.executeCommand('escrow.sessions.focus');
  await vscode.commands.executeCommand('escrow.refresh');
};
