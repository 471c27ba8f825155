// The side panel: GET /live once a second, drawn as bars and a line.

const byId = (id) => document.getElementById(id);
const history = [];
const historyLength = 60;
let mostRows = 1;

function setText(id, text) {
  const node = byId(id);
  if (node.textContent !== text) node.textContent = text;
}

const number = (value) => (Number.isFinite(value) ? value : 0);
const grouped = (value) => number(value).toLocaleString('en', { maximumFractionDigits: 0 });

function duration(total) {
  const s = Math.floor(number(total));
  const parts = [[Math.floor(s / 86400), 'd'], [Math.floor(s / 3600) % 24, 'h'], [Math.floor(s / 60) % 60, 'min'], [s % 60, 's']];
  const first = Math.max(0, parts.findIndex(([n]) => n > 0));
  return parts.slice(first, first + 2).map(([n, unit]) => `${n} ${unit}`).join(' ');
}

// As many children as there are items, each brought up to date by `update(child, item, i)`.
function sync(parent, items, makeChild, update) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(makeChild());
  items.forEach((item, i) => update(parent.children[i], item, i));
}

function drawSparkline(rate) {
  history.push(rate);
  if (history.length > historyLength) history.shift();
  const top = Math.max(1, ...history);
  const x = (i) => ((historyLength - history.length + i) / (historyLength - 1)) * 240;
  const y = (value) => 45 - (value / top) * 42;
  const points = history.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`);
  const svg = byId('sparkline');
  if (!svg.firstChild) {
    for (const name of ['polygon', 'polyline']) svg.append(document.createElementNS('http://www.w3.org/2000/svg', name));
  }
  svg.firstChild.setAttribute('points', `${x(0).toFixed(1)},48 ${points.join(' ')} 240,48`);
  svg.lastChild.setAttribute('points', points.join(' '));
  svg.setAttribute('aria-label', `tokens per second, last minute: now ${Math.round(rate)}, at most ${Math.round(top)}`);
}

function makeRank() {
  const column = document.createElement('div');
  column.className = 'rank';
  for (const name of ['rank-rows', 'rank-track', 'rank-name']) {
    const part = document.createElement('span');
    part.className = name;
    column.append(part);
  }
  const bar = document.createElement('span');
  bar.className = 'rank-bar';
  column.children[1].append(bar);
  return column;
}

function drawRanks(rows) {
  mostRows = Math.max(1, mostRows * 0.98, ...rows);  // the scale falls slowly, so that bars can be compared over time
  const parent = byId('ranks');
  parent.classList.toggle('many', rows.length > 16);
  sync(parent, rows, makeRank, (column, value, i) => {
    column.children[0].textContent = String(value);
    column.children[1].firstChild.style.height = `${Math.min(100, (value / mostRows) * 100)}%`;
    column.children[2].textContent = String(i);
  });
  parent.setAttribute('aria-label', 'rows per rank: ' + rows.map((value, i) => `rank ${i} has ${value}`).join(', '));
}

function makeReplica() {
  const row = document.createElement('div');
  row.className = 'replica';
  for (const name of ['replica-name', 'meter', 'replica-value']) {
    const part = document.createElement('span');
    part.className = name;
    row.append(part);
  }
  row.children[1].setAttribute('role', 'meter');
  row.children[1].setAttribute('aria-valuemin', '0');
  row.children[1].append(document.createElement('span'));
  return row;
}

// What a mean step since the last look spent where; while there was none, the bars stay.
let phasesBefore = null;
function drawPhases(phases, steps) {
  const before = phasesBefore;
  phasesBefore = { phases, steps };
  if (!before || steps <= before.steps) return;
  const each = Object.entries(phases).map(([name, total]) => [name, (1000 * (number(total) - number(before.phases[name]))) / (steps - before.steps)]);
  const whole = Math.max(1e-9, each.reduce((sum, [, ms]) => sum + ms, 0));
  sync(byId('phases'), each, makeReplica, (row, [name, ms]) => {
    const [title, meter, value] = row.children;
    title.textContent = name;
    meter.setAttribute('aria-label', name);
    meter.setAttribute('aria-valuemax', '100');
    meter.setAttribute('aria-valuenow', String(Math.round((100 * ms) / whole)));
    meter.firstChild.style.width = `${Math.min(100, (100 * ms) / whole)}%`;
    value.textContent = `${ms.toFixed(ms < 10 ? 2 : 0)} ms`;
  });
}

function drawReplicas(replicas) {
  sync(byId('replicas'), replicas, makeReplica, (row, replica, i) => {
    const used = number(replica.pages_used);
    const total = Math.max(1, number(replica.pages_total));
    const [name, meter, value] = row.children;
    name.textContent = String(i);
    meter.setAttribute('aria-label', `replica ${i}`);
    meter.setAttribute('aria-valuemax', String(total));
    meter.setAttribute('aria-valuenow', String(used));
    meter.firstChild.style.width = `${Math.min(100, (used / total) * 100)}%`;
    meter.classList.toggle('high', used > 0.9 * total);
    const queued = number(replica.queued);
    value.textContent = `${grouped(used)} of ${grouped(total)}` + (queued > 0 ? `, ${grouped(queued)} queued` : '');
  });
}

function draw(live) {
  const replicas = Array.isArray(live.replicas) ? live.replicas : [];
  const rows = Array.isArray(live.rows_per_rank) ? live.rows_per_rank.map(number) : [];
  const total = (key) => replicas.reduce((sum, replica) => sum + number(replica[key]), 0);
  const rate = number(live.tokens_per_second);
  setText('rate', rate >= 100 ? grouped(rate) : rate.toFixed(1));
  setText('running', grouped(total('running')));
  setText('queued', grouped(total('queued')));
  byId('queued').classList.toggle('warn', total('queued') > 0);
  setText('num-ranks', grouped(live.num_ranks));
  setText('steps', grouped(live.steps));
  setText('uptime', duration(live.uptime_seconds));
  drawSparkline(rate);
  drawRanks(rows);
  drawReplicas(replicas);
  drawPhases(live.phase_seconds ?? {}, number(live.steps));
  setText('engine-state', String(live.state ?? '–') + (number(live.restarts) > 0 ? `, ${grouped(live.restarts)} restarts` : ''));
}

// Calls onModel(name) whenever the server is reached; runs as long as the page does.
export async function pollLive(onModel) {
  for (;;) {
    if (!document.hidden) {
      try {
        const response = await fetch('live', { cache: 'no-store', signal: AbortSignal.timeout(5000) });
        if (!response.ok) throw new Error(`status ${response.status}`);
        const live = await response.json();
        draw(live);
        onModel(String(live.model ?? ''));
        byId('dot').className = 'dot on';
        setText('live-status', '');
      } catch (failure) {
        byId('dot').className = 'dot off';
        setText('live-status', `The server cannot be reached (${failure.message}); trying again.`);
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
