// Server-sent events of a fetch response's body, as the HTML standard parses them: yields the data of each event.
export async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let waiting = '';
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      waiting += done ? decoder.decode() : decoder.decode(value, { stream: true });
      // A lone CR at the end may be the first half of CRLF: it waits for what follows.
      for (let end; (end = /\r\n|\n|\r(?=[^])/.exec(waiting)) !== null;) {
        const line = waiting.slice(0, end.index);
        waiting = waiting.slice(end.index + end[0].length);
        if (line === '') {
          if (data.length > 0) yield data.join('\n');
          data = [];
        } else if (line.startsWith('data:')) {
          data.push(line.slice(line[5] === ' ' ? 6 : 5));
        }
      }
      if (done) return;  // an event without its empty line is incomplete and dropped
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
