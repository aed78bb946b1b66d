// Preloaded into the VS Code server: the environment of extension hosts that start from now on is what the test says, so
// that tests with a state folder of their own can share one server.
if (process.argv[1]?.endsWith('server-main.js') === true && process.channel !== undefined) {
  process.on('message', ({ environment }) => {
    if (environment === undefined) return;
    Object.assign(process.env, environment);
    process.send({ environment: 'set' });
  });
}
