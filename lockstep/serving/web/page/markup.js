// Model text to page nodes: paragraphs, headings, lists, code, bold and italic. Everything goes through createElement and
// textContent, so nothing in the text can become markup of its own; links are shown as text.

function element(name, text) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  return node;
}

// `code`, **bold**, *italic* inside one line of text.
function appendInline(parent, text) {
  const pattern = /(`+)([^]+?)\1(?!`)|\*\*([^\s*](?:[^]*?[^\s*])?)\*\*|\*([^\s*](?:[^*]*?[^\s*])?)\*(?!\w)/g;
  let at = 0;
  for (const found of text.matchAll(pattern)) {
    parent.append(text.slice(at, found.index));
    if (found[1]) parent.append(element('code', found[2]));
    else if (found[3] !== undefined) parent.append(element('strong', found[3]));
    else parent.append(element('em', found[4]));
    at = found.index + found[0].length;
  }
  parent.append(text.slice(at));
}

// Blocks of text: a fence is one block, else empty lines separate.
export function splitBlocks(text) {
  const blocks = [];
  let lines = [];
  let fence = null;
  const end = () => {
    if (lines.length > 0) blocks.push(lines.join('\n'));
    lines = [];
  };
  for (const line of text.split('\n')) {
    const mark = /^\s*(```+|~~~+)/.exec(line)?.[1];
    if (fence) {
      lines.push(line);
      if (mark && mark[0] === fence[0] && mark.length >= fence.length && line.trim() === mark) { end(); fence = null; }
    } else if (mark) {
      end();
      fence = mark;
      lines.push(line);
    } else if (line.trim() === '') {
      end();
    } else {
      lines.push(line);
    }
  }
  end();
  return blocks;
}

function codeBlock(lines) {
  const last = lines.length > 1 && /^\s*(```+|~~~+)\s*$/.test(lines.at(-1)) ? -1 : undefined;
  const pre = element('pre');
  pre.tabIndex = 0;  // it may scroll, so the keyboard must reach it
  pre.append(element('code', lines.slice(1, last).join('\n')));
  return pre;
}

const bullet = /^\s*(?:[-*+]|\d+[.)])\s+/;

function list(lines) {
  const node = element(/^\s*\d/.test(lines[0]) ? 'ol' : 'ul');
  if (node.tagName === 'OL') node.start = Number.parseInt(lines[0], 10);
  let item = null;
  for (const line of lines) {
    if (bullet.test(line)) {
      item = element('li');
      node.append(item);
      appendInline(item, line.replace(bullet, ''));
    } else {
      item.append('\n');
      appendInline(item, line.trim());
    }
  }
  return node;
}

function block(text) {
  const lines = text.split('\n');
  if (/^\s*(```|~~~)/.test(lines[0])) return codeBlock(lines);
  if (bullet.test(lines[0]) && lines.length < 1000) return list(lines);
  const heading = lines.length === 1 ? /^(#{1,6})\s+(.*)$/.exec(lines[0]) : null;
  const node = element(heading ? 'h4' : 'p');
  appendInline(node, heading ? heading[2] : text);
  return node;
}

// Shows `text` in `parent`. Called again with a longer text it makes only the blocks anew that changed.
export function showMarkup(parent, text) {
  const blocks = splitBlocks(text);
  const before = parent.shownBlocks ?? [];
  let same = 0;
  while (same < blocks.length && blocks[same] === before[same]) same += 1;
  while (parent.childNodes.length > same) parent.lastChild.remove();
  for (const text of blocks.slice(same)) parent.append(block(text));
  parent.shownBlocks = blocks;
}
