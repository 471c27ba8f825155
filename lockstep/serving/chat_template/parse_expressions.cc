// The parser's half for expressions, with Jinja's precedence (tests and filters bind tighter than
// arithmetic).
#include <algorithm>
#include <array>

#include "lockstep/serving/chat_template/filters.h"
#include "lockstep/serving/chat_template/parser.h"
#include "lockstep/serving/chat_template/value_tests.h"

namespace lockstep::serving::jinja {
namespace {

// Of one expression: a chain of operators is a tree as high as it is long, and it is evaluated recursively.
constexpr int kMaxHeight = 400;

}  // namespace

ExprPtr Parser::with_height(ExprPtr expr) {
  int below = 0;
  const auto look = [&](const ExprPtr& part) {
    if (part != nullptr) below = std::max(below, part->height);
  };
  for (const ExprPtr& operand : expr->operands) look(operand);
  if (expr->arguments != nullptr) {
    for (const ExprPtr& value : expr->arguments->positional) look(value);
    for (const auto& [name, value] : expr->arguments->keywords) look(value);
    look(expr->arguments->spread);
    look(expr->arguments->spread_keywords);
  }
  expr->height = below + 1;
  if (expr->height > kMaxHeight)
    fail(expr->line, "an expression has more than {} levels of operators", kMaxHeight);
  return expr;
}

ExprPtr Parser::make_constant(int line, Value value) {
  ExprPtr expr = make(ExprKind::kConstant, line);
  expr->constant = std::move(value);
  return expr;
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  const Token& token = current();
  return token.kind == TokenKind::kOutputEnd || token.kind == TokenKind::kBlockEnd ||
         token.is_operator(")") || (!end_name.empty() && token.is_name(end_name));
}

// One expression, or several with commas between them: a tuple without parentheses.
ExprPtr Parser::parse_tuple(Condition condition, std::string_view end_name) {
  const int line = current().line;
  if (at_tuple_end(end_name)) fail(line, "expected an expression, got {}", describe(current()));
  ExprPtr first = parse_expression(condition);
  if (!current().is_operator(",")) return first;
  ExprPtr tuple = make(ExprKind::kTuple, line, std::move(first));
  while (skip_operator(",")) {
    if (at_tuple_end(end_name)) break;
    tuple->operands.push_back(parse_expression(condition));
  }
  return with_height(std::move(tuple));
}

ExprPtr Parser::parse_simple_target(bool may_be_attribute) {
  const Token& token = current();
  if (skip_operator("(")) {
    const Nesting nesting(*this);
    ExprPtr target = parse_target({}, may_be_attribute);
    expect_operator(")", "behind the variables");
    return target;
  }
  if (token.kind != TokenKind::kName)
    fail(token.line, "expected the name of a variable to assign to, got {}", describe(token));
  constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), token.text) != kConstants.end())
    fail(token.line, "cannot assign to '{}'", token.text);
  ExprPtr target = make(ExprKind::kName, token.line);
  target->name = take().text;
  if (may_be_attribute && skip_operator(".")) {
    target->kind = ExprKind::kNamespaceTarget;
    target->attribute = expect_name("the name of an attribute");
  }
  return target;
}

ExprPtr Parser::parse_target(std::string_view end_name, bool may_be_attribute) {
  const int line = current().line;
  ExprPtr first = parse_simple_target(may_be_attribute);
  if (!current().is_operator(",")) return first;
  ExprPtr tuple = make(ExprKind::kTuple, line, std::move(first));
  while (skip_operator(",")) {
    if (at_tuple_end(end_name) || current().is_operator("=")) break;
    tuple->operands.push_back(parse_simple_target(may_be_attribute));
  }
  return tuple;
}

ExprPtr Parser::parse_expression(Condition condition) {
  const Nesting nesting(*this);
  if (condition == Condition::kNotAllowed) return parse_or();
  const int line = current().line;
  ExprPtr value = parse_or();
  while (skip_name("if")) {
    ExprPtr test = parse_or();
    ExprPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    value = make(ExprKind::kConditional, line, std::move(test), std::move(value), std::move(otherwise));
  }
  return value;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (current().is_name("or")) {
    const int line = take().line;
    left = make(ExprKind::kOr, line, std::move(left), parse_and());
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (current().is_name("and")) {
    const int line = take().line;
    left = make(ExprKind::kAnd, line, std::move(left), parse_not());
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  const int line = take().line;
  return make(ExprKind::kNot, line, parse_not());
}

ExprPtr Parser::parse_comparison() {
  struct Symbol {
    std::string_view text;
    CompareOp op;
  };
  constexpr std::array<Symbol, 6> kSymbols = {{{"==", CompareOp::kEqual},
                                               {"!=", CompareOp::kNotEqual},
                                               {"<", CompareOp::kLess},
                                               {"<=", CompareOp::kLessEqual},
                                               {">", CompareOp::kGreater},
                                               {">=", CompareOp::kGreaterEqual}}};
  const int line = current().line;
  ExprPtr first = parse_sum();
  ExprPtr chain;
  const auto add = [&](CompareOp op) {
    if (chain == nullptr) chain = make(ExprKind::kCompare, line, std::move(first));
    chain->compare_ops.push_back(op);
    chain->operands.push_back(parse_sum());
  };
  while (true) {
    const auto found = std::find_if(kSymbols.begin(), kSymbols.end(),
                                    [&](const Symbol& symbol) { return current().is_operator(symbol.text); });
    if (found != kSymbols.end()) {
      take();
      add(found->op);
    } else if (skip_name("in")) {
      add(CompareOp::kIn);
    } else if (current().is_name("not") && following().is_name("in")) {
      take();
      take();
      add(CompareOp::kNotIn);
    } else {
      return chain == nullptr ? std::move(first) : with_height(std::move(chain));
    }
  }
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concatenation();
  while (current().is_operator("+") || current().is_operator("-")) {
    const Token& symbol = take();
    const BinaryOp op = symbol.text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    left = make(ExprKind::kBinary, symbol.line, std::move(left), parse_concatenation());
    left->binary_op = op;
  }
  return left;
}

ExprPtr Parser::parse_concatenation() {
  const int line = current().line;
  ExprPtr first = parse_product();
  if (!current().is_operator("~")) return first;
  ExprPtr all = make(ExprKind::kConcatenate, line, std::move(first));
  while (skip_operator("~")) all->operands.push_back(parse_product());
  return with_height(std::move(all));
}

ExprPtr Parser::parse_product() {
  struct Symbol {
    std::string_view text;
    BinaryOp op;
  };
  constexpr std::array<Symbol, 4> kSymbols = {{{"*", BinaryOp::kMultiply},
                                               {"/", BinaryOp::kDivide},
                                               {"//", BinaryOp::kFloorDivide},
                                               {"%", BinaryOp::kModulo}}};
  ExprPtr left = parse_power();
  while (true) {
    const auto found = std::find_if(kSymbols.begin(), kSymbols.end(),
                                    [&](const Symbol& symbol) { return current().is_operator(symbol.text); });
    if (found == kSymbols.end()) return left;
    const int line = take().line;
    left = make(ExprKind::kBinary, line, std::move(left), parse_power());
    left->binary_op = found->op;
  }
}

// Jinja's ** groups from the left, unlike Python's.
ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(Filters::kAllowed);
  while (current().is_operator("**")) {
    const int line = take().line;
    left = make(ExprKind::kBinary, line, std::move(left), parse_unary(Filters::kAllowed));
    left->binary_op = BinaryOp::kPower;
  }
  return left;
}

ExprPtr Parser::parse_unary(Filters filters) {
  const Nesting nesting(*this);
  ExprPtr expr;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Token& symbol = take();
    const ExprKind kind = symbol.text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    expr = make(kind, symbol.line, parse_unary(Filters::kNotAllowed));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return filters == Filters::kAllowed ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString:
      return parse_string();
    case TokenKind::kInteger:
      take();
      return make_constant(token.line, Value::integer(token.integer));
    case TokenKind::kFloat:
      take();
      return make_constant(token.line, Value::real(token.real));
    default:
      break;
  }
  if (token.is_operator("(")) return parse_parentheses();
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  fail(token.line, "expected an expression, got {}", describe(token));
}

ExprPtr Parser::parse_name() {
  const Token& token = take();
  if (token.text == "true" || token.text == "True") return make_constant(token.line, Value::boolean(true));
  if (token.text == "false" || token.text == "False") return make_constant(token.line, Value::boolean(false));
  if (token.text == "none" || token.text == "None") return make_constant(token.line, Value::none());
  ExprPtr expr = make(ExprKind::kName, token.line);
  expr->name = token.text;
  return expr;
}

// Adjacent literals are one.
ExprPtr Parser::parse_string() {
  const int line = current().line;
  std::string text;
  while (current().kind == TokenKind::kString) text += take().text;
  return make_constant(line, constant_text(std::move(text)));
}

ExprPtr Parser::parse_parentheses() {
  const int line = take().line;
  if (skip_operator(")")) return make(ExprKind::kTuple, line);
  ExprPtr inside = parse_tuple(Condition::kAllowed);
  expect_operator(")", "behind the expression");
  return inside;
}

ExprPtr Parser::parse_list() {
  ExprPtr list = make(ExprKind::kList, take().line);
  while (!current().is_operator("]")) {
    if (!list->operands.empty()) expect_operator(",", "or ']' in the list");
    if (current().is_operator("]")) break;
    list->operands.push_back(parse_expression());
  }
  take();
  return with_height(std::move(list));
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = make(ExprKind::kDict, take().line);
  while (!current().is_operator("}")) {
    if (!dict->operands.empty()) expect_operator(",", "or '}' in the dict");
    if (current().is_operator("}")) break;
    dict->operands.push_back(parse_expression());
    expect_operator(":", "behind the key of the dict");
    dict->operands.push_back(parse_expression());
  }
  take();
  return with_height(std::move(dict));
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (current().is_operator(".") || current().is_operator("["))
      expr = parse_subscript(std::move(expr));
    else if (current().is_operator("("))
      expr = parse_call(std::move(expr));
    else
      return expr;
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (current().is_operator("|"))
      expr = parse_filter_chain(std::move(expr));
    else if (current().is_name("is"))
      expr = parse_test(std::move(expr));
    else if (current().is_operator("("))
      expr = parse_call(std::move(expr));
    else
      return expr;
  }
}

ExprPtr Parser::parse_filter_chain(ExprPtr expr) {
  while (skip_operator("|")) expr = parse_one_filter(std::move(expr));
  return expr;
}

std::string Parser::parse_dotted_name(std::string_view what) {
  std::string name = expect_name(what);
  while (skip_operator(".")) name += "." + expect_name(what);
  return name;
}

ExprPtr Parser::parse_one_filter(ExprPtr expr) {
  const int line = current().line;
  ExprPtr filter = make(ExprKind::kFilter, line, std::move(expr));
  filter->name = parse_dotted_name("the name of a filter");
  filter->filter = find_filter(filter->name);
  if (filter->filter == nullptr) fail(line, "there is no filter '{}'", filter->name);
  if (filter->filter->call == nullptr)
    fail(line, "the filter '{}' is not supported in chat templates", filter->name);
  filter->arguments = current().is_operator("(") ? parse_arguments() : std::make_unique<Arguments>();
  return with_height(std::move(filter));
}

ExprPtr Parser::parse_test(ExprPtr expr) {
  const int line = take().line;  // is
  const bool is_negated = skip_name("not");
  ExprPtr test = make(ExprKind::kTest, line, std::move(expr));
  test->name = parse_dotted_name("the name of a test");
  test->test = find_test(test->name);
  if (test->test == nullptr) fail(line, "there is no test '{}'", test->name);
  const Token& next = current();
  const bool starts_value = next.kind == TokenKind::kName || next.kind == TokenKind::kString ||
                            next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
                            next.is_operator("[") || next.is_operator("{");
  if (next.is_operator("(")) {
    test->arguments = parse_arguments();
  } else {
    test->arguments = std::make_unique<Arguments>();
    if (starts_value && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
      if (next.is_name("is")) fail(next.line, "tests cannot be chained with 'is'");
      test->arguments->positional.push_back(parse_postfix(parse_primary()));
    }
  }
  test = with_height(std::move(test));
  return is_negated ? make(ExprKind::kNot, line, std::move(test)) : std::move(test);
}

ExprPtr Parser::parse_subscript(ExprPtr expr) {
  const int line = current().line;
  if (skip_operator(".")) {
    if (current().kind == TokenKind::kInteger)
      return make(ExprKind::kItem, line, std::move(expr),
                  make_constant(line, Value::integer(take().integer)));
    ExprPtr attribute = make(ExprKind::kAttribute, line, std::move(expr));
    attribute->name = expect_name("the name of an attribute");
    return attribute;
  }
  take();  // [
  if (current().is_operator("]")) fail(line, "expected an index between '[' and ']'");
  ExprPtr first, stop, step;
  if (!current().is_operator(":")) first = parse_expression();
  if (current().is_operator(",")) {
    ExprPtr key = make(ExprKind::kTuple, line, std::move(first));
    while (skip_operator(",") && !current().is_operator("]")) key->operands.push_back(parse_expression());
    first = with_height(std::move(key));
  }
  const bool is_slice = skip_operator(":");
  const auto at_bound = [&] { return !current().is_operator(":") && !current().is_operator("]"); };
  if (is_slice && at_bound()) stop = parse_expression();
  if (is_slice && skip_operator(":") && at_bound()) step = parse_expression();
  expect_operator("]", "behind the index");
  if (!is_slice) return make(ExprKind::kItem, line, std::move(expr), std::move(first));
  return make(ExprKind::kSlice, line, std::move(expr), std::move(first), std::move(stop), std::move(step));
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  ExprPtr call = make(ExprKind::kCall, current().line, std::move(callee));
  call->arguments = parse_arguments();
  return with_height(std::move(call));
}

std::unique_ptr<Arguments> Parser::parse_arguments() {
  auto arguments = std::make_unique<Arguments>();
  take();  // (
  bool is_first = true;
  while (!current().is_operator(")")) {
    if (!is_first) expect_operator(",", "or ')' in the arguments");
    is_first = false;
    if (current().is_operator(")")) break;
    parse_argument(*arguments);
  }
  take();
  return arguments;
}

void Parser::parse_argument(Arguments& arguments) {
  const int line = current().line;
  const bool has_spread = arguments.spread != nullptr;
  const bool has_spread_keywords = arguments.spread_keywords != nullptr;
  if (skip_operator("*")) {
    if (has_spread || has_spread_keywords)
      fail(line, "only one *argument is possible, and before **arguments");
    arguments.spread = parse_expression();
  } else if (skip_operator("**")) {
    if (has_spread_keywords) fail(line, "only one **argument is possible");
    arguments.spread_keywords = parse_expression();
  } else if (current().kind == TokenKind::kName && following().is_operator("=")) {
    if (has_spread_keywords) fail(line, "a named argument cannot follow **arguments");
    std::string name = take().text;
    take();  // =
    const auto same = [&](const auto& keyword) { return keyword.first == name; };
    if (std::any_of(arguments.keywords.begin(), arguments.keywords.end(), same))
      fail(line, "the argument '{}' is given twice", name);
    arguments.keywords.emplace_back(std::move(name), parse_expression());
  } else {
    if (has_spread || has_spread_keywords || !arguments.keywords.empty())
      fail(line, "a positional argument cannot follow named ones");
    arguments.positional.push_back(parse_expression());
  }
}

}  // namespace lockstep::serving::jinja
