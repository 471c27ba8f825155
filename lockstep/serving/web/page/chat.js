// A conversation with /v1/chat/completions: what was said, and one streamed answer at a time. Knows nothing of the page.
import { readEvents } from './sse.js';

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;  // of the answer; undefined when the fault came later
  }
}

// One assistant message as it grows. `onChange` is called after each piece.
export class Reply {
  constructor() {
    this.reasoning = '';
    this.content = '';
    this.toolCalls = [];
    this.finish = null;
    this.usage = null;
  }

  add(delta) {
    this.reasoning += delta.reasoning_content ?? delta.reasoning ?? '';
    this.content += delta.content ?? '';
    for (const piece of delta.tool_calls ?? []) {
      const index = Number.isInteger(piece.index) && piece.index >= 0 && piece.index < 128 ? piece.index : 0;
      while (this.toolCalls.length <= index) this.toolCalls.push({ id: '', name: '', arguments: '' });
      const call = this.toolCalls[index];
      call.id = piece.id ?? call.id;
      call.name += piece.function?.name ?? '';
      call.arguments += piece.function?.arguments ?? '';
    }
  }

  // As it is sent back with the next request.
  message() {
    const message = { role: 'assistant', content: this.content };
    if (this.toolCalls.length > 0) {
      if (this.reasoning) message.reasoning_content = this.reasoning;
      message.tool_calls = this.toolCalls.map((call) => ({
        id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments || '{}' },
      }));
    }
    return message;
  }
}

async function errorOf(response) {
  const text = await response.text().catch(() => '');
  try {
    const { error } = JSON.parse(text);
    if (typeof error?.message === 'string') return new ApiError(`${response.status}: ${error.message}`, response.status);
  } catch { /* not JSON: shown as it is */ }
  return new ApiError(`${response.status}: ${text.slice(0, 300) || response.statusText || 'no reason given'}`, response.status);
}

// Streams one answer into `reply`, calling onChange() after each event. Throws ApiError for what the server says and
// whatever fetch throws, AbortError among it.
export async function streamReply(request, apiKey, reply, onChange, signal) {
  const headers = { 'Content-Type': 'application/json' };
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  const response = await fetch('v1/chat/completions', {
    method: 'POST',
    headers,
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await errorOf(response);
  for await (const data of readEvents(response.body)) {
    if (data === '[DONE]') return;
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      throw new ApiError('the server sent an event that is not JSON');
    }
    if (event.error) throw new ApiError(event.error.message ?? 'the server failed without saying why');
    if (event.usage) reply.usage = event.usage;
    for (const choice of event.choices ?? []) {
      reply.add(choice.delta ?? {});
      reply.finish = choice.finish_reason ?? reply.finish;
    }
    onChange();
  }
  throw new ApiError('the connection ended before the answer was complete');
}
