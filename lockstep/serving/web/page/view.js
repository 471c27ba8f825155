// Messages on the page. Model text reaches the page only as text nodes.
import { showMarkup } from './markup.js';

function make(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

const seconds = (ms) => (ms < 9950 ? (ms / 1000).toFixed(1) : Math.round(ms / 1000)) + ' s';

export function showUser(log, text) {
  const article = make('article', 'message user');
  article.append(make('h3', 'hidden', 'You'), make('div', 'bubble', text));
  log.append(article);
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;  // not complete yet, or not JSON: as the model wrote it
  }
}

// What the model thinks: open while it thinks, folded afterwards unless the reader has had a hand in it.
class ThinkingView {
  constructor() {
    this.node = make('details', 'thinking');
    this.summary = make('summary', '', 'Thinking…');
    this.text = make('div', 'thinking-text');
    this.node.append(this.summary, this.text);
    this.node.open = true;
    this.began = performance.now();
    this.isTouched = false;
    this.summary.addEventListener('click', () => { this.isTouched = true; });
  }
  show(text) { this.text.textContent = text; }
  end() {
    if (this.ended) return;
    this.ended = true;
    const ms = performance.now() - this.began;
    this.summary.textContent = ms < 100 ? 'Thought for a moment' : `Thought for ${seconds(ms)}`;
    this.node.classList.add('done');
    if (!this.isTouched) this.node.open = false;
  }
}

class ToolCard {
  constructor() {
    this.node = make('section', 'tool');
    this.title = make('h4', 'tool-name');
    this.args = make('pre', 'tool-args');
    this.args.tabIndex = 0;
    this.node.append(this.title, this.args);
  }
  show(call) {
    this.title.textContent = call.name;
    this.args.textContent = pretty(call.arguments);
  }
  showResult(text, kind) {
    const line = make('p', 'tool-result ' + kind);
    line.append(make('span', 'tool-result-name', kind === 'failed' ? 'error' : 'result'), make('output', '', text));
    this.node.append(line);
  }
}

// One answer of the model. show() may be called as often as pieces come; the page is touched once a frame.
export class ReplyView {
  constructor(log, onShown) {
    this.node = make('article', 'message assistant');
    this.content = make('div', 'content');
    this.tools = make('div', 'tools');
    this.foot = make('p', 'foot');
    this.node.append(make('h3', 'hidden', 'Model'), this.content, this.tools, this.foot);
    this.node.classList.add('waiting');
    log.append(this.node);
    this.onShown = onShown;
    this.cards = [];
    this.began = performance.now();
  }

  show(reply) {
    this.first ??= performance.now();
    this.reply = reply;
    if (this.frame) return;
    const draw = () => {
      this.frame = undefined;
      this.draw();
    };
    // A page in the background gets no frames; it still shows what came when it is looked at again.
    this.frame = document.hidden ? setTimeout(draw, 100) : requestAnimationFrame(draw);
  }

  draw() {
    const { reasoning, content, toolCalls } = this.reply;
    if (reasoning || content || toolCalls.length > 0) this.node.classList.remove('waiting');
    if (reasoning) {
      if (!this.thinking) {
        this.thinking = new ThinkingView();
        this.node.insertBefore(this.thinking.node, this.content);
      }
      this.thinking.show(reasoning);
    }
    if (content.trim() || toolCalls.length > 0) this.thinking?.end();
    showMarkup(this.content, content.trimStart());
    toolCalls.forEach((call, i) => {
      if (!this.cards[i]) {
        this.cards[i] = new ToolCard();
        this.tools.append(this.cards[i].node);
      }
      this.cards[i].show(call);
    });
    this.onShown();
  }

  end(reply, note) {
    this.reply = reply;
    this.draw();
    this.thinking?.end();
    this.node.classList.remove('waiting');
    this.node.classList.add('done');
    const now = performance.now();
    const parts = note ? [note] : [];
    const tokens = reply.usage?.completion_tokens;
    if (tokens > 0 && this.first) {
      parts.push(`${tokens} tokens`);
      const rate = (tokens - 1) / ((now - this.first) / 1000);
      if (tokens > 1 && Number.isFinite(rate)) parts.push(`${rate.toFixed(rate < 100 ? 1 : 0)} per second`);
      parts.push(`first after ${Math.round(this.first - this.began)} ms`);
    }
    if (reply.finish === 'length') parts.push('cut off at the token limit');
    this.foot.textContent = parts.join(' · ');
    this.onShown();
  }

  showToolResult(i, text, kind) {
    this.cards[i]?.showResult(text, kind);
    this.onShown();
  }

  remove() { this.node.remove(); }
}

export function showError(log, message, onRetry) {
  const box = make('div', 'error');
  box.setAttribute('role', 'alert');
  const retry = make('button', '', 'Try again');
  retry.type = 'button';
  retry.addEventListener('click', () => {
    box.remove();
    onRetry();
  });
  box.append(make('p', '', message), retry);
  log.append(box);
}
