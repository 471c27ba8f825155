// The demo tool: arithmetic by a small recursive-descent parser. Nothing the model writes is ever run as code.

export const calculatorTool = {
  type: 'function',
  function: {
    name: 'calculator',
    description: 'Evaluates an arithmetic expression.',
    parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  },
};

const functions = new Map([
  ['sqrt', Math.sqrt], ['abs', Math.abs], ['floor', Math.floor], ['ceil', Math.ceil], ['round', Math.round],
  ['min', Math.min], ['max', Math.max], ['log', Math.log], ['exp', Math.exp],
  ['sin', Math.sin], ['cos', Math.cos], ['tan', Math.tan],
]);
const constants = new Map([['pi', Math.PI], ['e', Math.E]]);
const maxLength = 1000;
const maxDepth = 100;

function tokenize(text) {
  const pattern = /\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z]+)|(\*\*|[-+*/%^(),×÷−]))/y;
  const tokens = [];
  const trimmed = text.trimEnd();
  while (pattern.lastIndex < trimmed.length) {
    const at = pattern.lastIndex;
    const found = pattern.exec(trimmed);
    if (!found) throw new Error(`cannot read "${trimmed.slice(at, at + 12)}"`);
    if (found[1]) tokens.push({ number: Number(found[1]) });
    else if (found[2]) tokens.push({ name: found[2].toLowerCase() });
    else tokens.push({ sign: { '×': '*', '÷': '/', '−': '-', '**': '^' }[found[3]] ?? found[3] });
  }
  return tokens;
}

class Parser {
  constructor(tokens) { this.tokens = tokens; this.at = 0; this.depth = 0; }

  takes(...signs) {
    const sign = this.tokens[this.at]?.sign;
    if (sign === undefined || !signs.includes(sign)) return undefined;
    this.at += 1;
    return sign;
  }
  expect(sign) {
    if (!this.takes(sign)) throw new Error(`"${sign}" is missing`);
  }
  sum() {
    if (++this.depth > maxDepth) throw new Error(`nested deeper than ${maxDepth} levels`);
    let value = this.product();
    for (let sign; (sign = this.takes('+', '-'));) value = sign === '+' ? value + this.product() : value - this.product();
    this.depth -= 1;
    return value;
  }
  product() {
    let value = this.signed();
    for (let sign; (sign = this.takes('*', '/', '%'));) {
      const right = this.signed();
      if (right === 0 && sign !== '*') throw new Error('division by zero');
      value = sign === '*' ? value * right : sign === '/' ? value / right : value % right;
    }
    return value;
  }
  signed() {
    let isNegative = false;
    for (let sign; (sign = this.takes('-', '+'));) isNegative = isNegative !== (sign === '-');
    const value = this.power();
    return isNegative ? -value : value;
  }
  power() {  // binds to the right: 2 ^ 3 ^ 2 is 2 ^ 9
    if (++this.depth > maxDepth) throw new Error(`nested deeper than ${maxDepth} levels`);
    const base = this.atom();
    const value = this.takes('^') ? Math.pow(base, this.signed()) : base;
    this.depth -= 1;
    return value;
  }
  atom() {
    const token = this.tokens[this.at];
    if (token === undefined) throw new Error('the expression ends too early');
    if (token.number !== undefined) return this.at += 1, token.number;
    if (token.name !== undefined) return this.at += 1, this.named(token.name);
    if (!this.takes('(')) throw new Error(`"${token.sign}" has no left side`);
    const value = this.sum();
    this.expect(')');
    return value;
  }
  named(name) {
    if (constants.has(name)) return constants.get(name);
    if (!functions.has(name)) throw new Error(`"${name}" is not known`);
    this.expect('(');
    const args = [this.sum()];
    while (this.takes(',')) args.push(this.sum());
    this.expect(')');
    return functions.get(name)(...args);
  }
}

// The value of an expression as text; throws an Error that says what is wrong.
export function evaluate(expression) {
  if (typeof expression !== 'string' || expression.trim() === '') throw new Error('there is no expression');
  if (expression.length > maxLength) throw new Error(`longer than ${maxLength} characters`);
  const parser = new Parser(tokenize(expression));
  const value = parser.sum();
  if (parser.at < parser.tokens.length) throw new Error('there is something behind the expression');
  if (!Number.isFinite(value)) throw new Error('the result is not a finite number');
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(15)));
}
