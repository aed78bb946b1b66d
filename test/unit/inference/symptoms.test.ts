import { describe, expect, test } from 'vitest';
import { classifyEngineError, errorText } from '../../../src/server/inference/symptoms.ts';

describe('whose fault an engine error was', () => {
  test.each([
    [400, 'registry.ollama.ai/library/x does not support tools', 'unsupported', 'tools_unsupported'],
    [400, '"x" does not support thinking', 'unsupported', 'think_unsupported'],
    [400, 'input length exceeds the context length', 'context', 'context_exceeded'],
    [200, 'the request exceeds the available context size (exceed_context_size_error)', 'context', 'context_exceeded'],
    [400, 'invalid options', 'unsupported', 'bad_request'],
    [403, 'forbidden', 'unsupported', 'cloud_refused'],
    [401, 'unauthorized', 'unsupported', 'cloud_refused'],
    [404, "model 'x' not found", 'unsupported', 'model_not_found'],
    [499, 'client closed request', 'transport', 'engine_cancelled'],
    [500, 'cudaMalloc failed: out of memory', 'resource', 'out_of_memory'],
    [500, 'model requires more system memory (8.1 GiB) than is available (3.2 GiB)', 'resource', 'out_of_memory'],
    [500, 'llama runner process has terminated: ErrorOutOfDeviceMemory', 'resource', 'out_of_memory'],
    [500, 'write blob: no space left on device', 'resource', 'disk_full'],
    [500, "error parsing tool call: raw='{', err=unexpected end of JSON input", 'model', 'tool_call_unparsable'],
    [
      200,
      "error parsing tool call: raw='x', err=invalid character 'x' looking for beginning of value",
      'model',
      'tool_call_unparsable',
    ],
    [500, 'XML syntax error on line 3: element <parameter> closed by </function>', 'model', 'tool_call_unparsable'],
    [500, 'llama runner process has terminated: exit status 2', 'transport', 'load_failed'],
    [500, 'timed out waiting for llama runner to start', 'transport', 'load_failed'],
    [500, 'unexpected EOF', 'transport', 'engine_eof'],
    [200, 'something new', 'transport', 'error_in_stream'],
    [500, 'something new', 'transport', 'http_500'],
    [502, 'bad gateway', 'transport', 'bad_gateway'],
    [503, 'server busy, please try again. maximum pending requests exceeded', 'transport', 'queue_full'],
  ])('%i %s', (status, text, kind, code) => {
    expect(classifyEngineError(status, text)).toEqual({ kind, code });
  });

  test('an error text is found inside JSON in strings, to a bounded depth', () => {
    expect(errorText('{"error":{"message":"too long","type":"exceed_context_size_error"}}')).toBe(
      'too long (exceed_context_size_error)',
    );
    expect(errorText('plain')).toBe('plain');
    expect(errorText(undefined)).toBe('unknown error');
    expect(errorText({ error: { error: { error: { error: 'deep' } } } })).toContain('deep');
  });
});
