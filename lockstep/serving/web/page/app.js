// The chat page: wires the conversation, its view, the tool and the live panel together.
import { calculatorTool, evaluate } from './calculator.js';
import { Reply, streamReply } from './chat.js';
import { pollLive } from './live.js';
import { ReplyView, showError, showUser } from './view.js';

const byId = (id) => document.getElementById(id);
const log = byId('log');
const scroller = byId('scroller');
const message = byId('message');

const maxToolRounds = 8;
const examples = [
  'What is 17 * 23?',
  'Mia has 12 boxes with 8 pens in each. Mia gives 59 to Leo. How many pens does Mia have now?',
  'What can you do?',
];

let model = '';
let messages = [];
let running = null;  // the AbortController of the answer that is being made

// ---- scrolling: follows the end unless the reader has scrolled away from it ----

let follows = true;
scroller.addEventListener('scroll', () => {
  follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
});
function followEnd() {
  if (follows) scroller.scrollTop = scroller.scrollHeight;
}

// ---- one turn: answers and tool calls until the model has nothing more to call ----

function requestBody(conversation) {
  const request = { messages: conversation };
  if (model) request.model = model;
  const temperature = Number.parseFloat(byId('temperature').value);
  if (temperature >= 0) request.temperature = temperature;
  const maxTokens = Number.parseInt(byId('max-tokens').value, 10);
  if (maxTokens > 0) request.max_tokens = maxTokens;
  const thinks = byId('thinking').checked;
  request.chat_template_kwargs = { enable_thinking: thinks, thinking: thinks };  // templates use one name or the other
  if (byId('calculator').checked) request.tools = [calculatorTool];
  return request;
}

function runTool(call) {
  try {
    if (call.name !== calculatorTool.function.name) throw new Error(`there is no tool named "${call.name}"`);
    let parsed;
    try {
      parsed = JSON.parse(call.arguments);
    } catch {
      throw new Error('the arguments are not JSON');
    }
    return { text: evaluate(parsed?.expression), kind: 'ok' };
  } catch (failure) {
    return { text: failure.message, kind: 'failed' };
  }
}

async function answerOnce(conversation, signal) {
  const reply = new Reply();
  const view = new ReplyView(log, followEnd);
  followEnd();
  try {
    await streamReply(requestBody(conversation), byId('api-key').value, reply, () => view.show(reply), signal);
  } catch (failure) {
    const isStopped = signal.aborted;
    if (reply.content || reply.reasoning) {
      reply.toolCalls = [];  // may be half a call
      view.end(reply, isStopped ? 'stopped' : 'broken off');
      if (isStopped && reply.content) conversation.push(reply.message());
    } else {
      view.remove();
    }
    throw failure;
  }
  view.end(reply);
  conversation.push(reply.message());
  reply.toolCalls.forEach((call, i) => {
    const result = runTool(call);
    view.showToolResult(i, result.text, result.kind);
    const content = result.kind === 'ok' ? result.text : `error: ${result.text}`;
    conversation.push({ role: 'tool', tool_call_id: call.id, content });
  });
  return reply;
}

function setRunning(controller) {
  running = controller;
  log.setAttribute('aria-busy', String(controller !== null));
  const isRunning = controller !== null;
  const hadFocus = document.activeElement === byId('stop');
  byId('send').hidden = isRunning;
  byId('stop').hidden = !isRunning;
  if (hadFocus && !isRunning) message.focus();
}

async function runTurn() {
  const conversation = messages;  // "New chat" puts another in its place
  const controller = new AbortController();
  setRunning(controller);
  try {
    let rounds = 0;
    while ((await answerOnce(conversation, controller.signal)).toolCalls.length > 0) {
      if (++rounds >= maxToolRounds) throw new Error(`the model called tools ${maxToolRounds} times in a row; stopped there`);
    }
  } catch (failure) {
    if (failure.status === 401) byId('key-setting').hidden = false;
    if (!controller.signal.aborted) showError(log, failure.message, runTurn);
  }
  if (running === controller) setRunning(null);
  followEnd();
}

// ---- controls ----

function say(text) {
  byId('welcome').hidden = true;
  for (const box of log.querySelectorAll('.error')) box.remove();
  messages.push({ role: 'user', content: text });
  showUser(log, text);
  follows = true;
  runTurn();
}

function fitMessage() {
  message.style.height = 'auto';
  message.style.height = `${Math.min(message.scrollHeight, 200)}px`;
}

byId('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  const text = message.value.trim();
  if (text === '' || running) return;
  message.value = '';
  fitMessage();
  say(text);
});
message.addEventListener('input', fitMessage);
message.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId('composer').requestSubmit();
});
byId('stop').addEventListener('click', () => running?.abort());
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') running?.abort();
});
byId('new-chat').addEventListener('click', () => {
  running?.abort();
  setRunning(null);
  messages = [];
  log.replaceChildren();
  byId('welcome').hidden = false;
  message.focus();
});
byId('api-key').addEventListener('keydown', (event) => {
  if (event.key === 'Enter') log.querySelector('.error button')?.click();
});
byId('panel-toggle').addEventListener('click', () => {
  const isOpen = document.body.classList.toggle('panel-open');
  byId('panel-toggle').setAttribute('aria-expanded', String(isOpen));
});

for (const text of examples) {
  const item = document.createElement('li');
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = text;
  button.addEventListener('click', () => { if (!running) say(text); });
  item.append(button);
  byId('examples').append(item);
}

pollLive((name) => {
  if (name === model) return;
  model = name;
  byId('model-name').textContent = name || 'unnamed model';
});
