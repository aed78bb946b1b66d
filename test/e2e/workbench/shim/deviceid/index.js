'use strict';
// The server reads a device id for telemetry, which is off in the tests: any fixed UUID will do.
exports.getDeviceId = () => Promise.resolve('00000000-0000-4000-8000-000000000000');
