'use strict';
// Plain appending log files with the surface of spdlog that the server uses; no rotation, because a test is short.
const fs = require('node:fs');
const path = require('node:path');

const levels = ['trace', 'debug', 'info', 'warning', 'error', 'critical', 'off'];

class Logger {
  constructor(file) {
    this.file = file;
    this.level = 2;
    this.raw = false;
  }
  write(level, message) {
    if (level < this.level || this.file === undefined) return;
    const line = this.raw ? message : `${new Date().toISOString()} [${levels[level]}] ${message}\n`;
    try {
      fs.appendFileSync(this.file, line);
    } catch {
      // A log that cannot be written must not end the server; the test's folder may be gone already.
    }
  }
  trace(message) {
    this.write(0, message);
  }
  debug(message) {
    this.write(1, message);
  }
  info(message) {
    this.write(2, message);
  }
  warn(message) {
    this.write(3, message);
  }
  error(message) {
    this.write(4, message);
  }
  critical(message) {
    this.write(5, message);
  }
  getLevel() {
    return this.level;
  }
  setLevel(level) {
    this.level = level;
  }
  setPattern() {}
  clearFormatters() {
    this.raw = true;
  }
  flush() {}
  drop() {
    this.file = undefined;
  }
}

async function create(_name, file) {
  await fs.promises.mkdir(path.dirname(file), { recursive: true });
  return new Logger(file);
}

exports.version = 1;
exports.setLevel = () => {};
exports.setFlushOn = () => {};
exports.Logger = Logger;
exports.createRotatingLogger = create;
exports.createAsyncRotatingLogger = create;
