#include "lockstep/serving/chat_template/parser.h"

#include <algorithm>
#include <array>

namespace lockstep::serving::jinja {
namespace {

// Of recursion: bounds the native stack. Published templates stay below 20.
constexpr int kMaxDepth = 250;

constexpr std::array<std::string_view, 8> kUnsupportedTags = {"autoescape", "block", "debug",  "do",
                                                              "extends",    "from",  "import", "include"};

bool is_end_or_middle(std::string_view tag) {
  return tag.starts_with("end") || tag == "else" || tag == "elif";
}

std::string join_tags(std::initializer_list<std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) out += fmt::format("{}'{}'", out.empty() ? "" : " or ", name);
  return out;
}

bool names_target(const Expr& target, std::string_view name) {
  if (target.kind == ExprKind::kName) return target.name == name;
  return std::any_of(target.operands.begin(), target.operands.end(),
                     [&](const ExprPtr& item) { return names_target(*item, name); });
}

ExprPtr copy_target(const Expr& target) {
  auto copy = std::make_unique<Expr>();
  copy->kind = target.kind;
  copy->line = target.line;
  copy->name = target.name;
  copy->height = target.height;
  for (const ExprPtr& item : target.operands) copy->operands.push_back(copy_target(*item));
  return copy;
}

}  // namespace

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ <= kMaxDepth) return;
  --parser_.depth_;
  fail(parser_.current().line, "tags and expressions are nested deeper than {} levels", kMaxDepth);
}

void Parser::fail_tag(const Token& token, Names expected) const {
  std::string hint;
  if (!open_tags_.empty())
    hint = fmt::format("; expected {} of the '{}' in line {}", join_tags(expected), open_tags_.back().name,
                       open_tags_.back().line);
  if (token.kind == TokenKind::kEnd) fail(token.line, "unexpected end of the template{}", hint);
  if (is_end_or_middle(token.text)) fail(token.line, "the tag '{}' does not belong here{}", token.text, hint);
  if (std::find(kUnsupportedTags.begin(), kUnsupportedTags.end(), token.text) != kUnsupportedTags.end())
    fail(token.line, "the tag '{}' is not supported in chat templates", token.text);
  fail(token.line, "there is no tag '{}'{}", token.text, hint);
}

const Token& Parser::take() {
  const Token& token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

bool Parser::skip_operator(std::string_view symbol) {
  if (!current().is_operator(symbol)) return false;
  take();
  return true;
}

void Parser::expect_operator(std::string_view symbol, std::string_view where) {
  if (!skip_operator(symbol))
    fail(current().line, "expected '{}' {}, got {}", symbol, where, describe(current()));
}

std::string Parser::expect_name(std::string_view what) {
  if (current().kind != TokenKind::kName)
    fail(current().line, "expected {}, got {}", what, describe(current()));
  return take().text;
}

void Parser::expect_block_end() {
  if (current().kind != TokenKind::kBlockEnd)
    fail(current().line, "expected '%}}' at the end of the tag, got {}", describe(current()));
  take();
}

Program Parser::parse() {
  Program program;
  program.body = parse_body({});
  return program;
}

// Behind a tag's own expressions: "%}", then the body. The end tag's name is the current token afterwards.
Block Parser::parse_block(Names end_tags) {
  skip_operator(":");
  expect_block_end();
  return parse_body(end_tags);
}

Block Parser::parse_body(Names end_tags) {
  const Nesting nesting(*this);
  Block block;
  while (true) {
    switch (current().kind) {
      case TokenKind::kData: {
        auto text = std::make_unique<TextStatement>(current().line);
        text->text = take().text;
        block.push_back(std::move(text));
        break;
      }
      case TokenKind::kOutputBegin:
        block.push_back(parse_output());
        break;
      case TokenKind::kBlockBegin:
        take();
        if (std::any_of(end_tags.begin(), end_tags.end(),
                        [&](std::string_view tag) { return current().is_name(tag); }))
          return block;
        if (auto statement = parse_statement(end_tags)) block.push_back(std::move(statement));
        expect_block_end();
        break;
      default:
        if (end_tags.size() > 0) fail_tag(current(), end_tags);
        return block;
    }
  }
}

std::unique_ptr<Statement> Parser::parse_output() {
  auto output = std::make_unique<OutputStatement>(current().line);
  take();
  output->value = parse_tuple(Condition::kAllowed);
  if (current().kind != TokenKind::kOutputEnd)
    fail(current().line, "expected '}}}}' at the end of the output, got {}", describe(current()));
  take();
  return output;
}

std::unique_ptr<Statement> Parser::parse_statement(Names end_tags) {
  const Nesting nesting(*this);
  const Token& tag = current();
  if (tag.kind != TokenKind::kName) fail(tag.line, "expected the name of a tag, got {}", describe(tag));
  const int line = tag.line;
  using Parse = std::unique_ptr<Statement> (Parser::*)(int);
  struct Tag {
    std::string_view name;
    Parse parse;
  };
  constexpr std::array<Tag, 8> kTags = {{{"if", &Parser::parse_if},
                                         {"for", &Parser::parse_for},
                                         {"set", &Parser::parse_set},
                                         {"macro", &Parser::parse_macro},
                                         {"call", &Parser::parse_call_block},
                                         {"filter", &Parser::parse_filter_block},
                                         {"with", &Parser::parse_with},
                                         {"generation", &Parser::parse_generation}}};
  if (skip_name("break")) return parse_loop_control(line, StatementKind::kBreak);
  if (skip_name("continue")) return parse_loop_control(line, StatementKind::kContinue);
  if (tag.text == "print") {
    auto output = std::make_unique<OutputStatement>(line);
    take();
    output->value = parse_expression();
    if (current().is_operator(",")) fail(line, "print with several values is not supported; write {{{{ }}}}");
    return output;
  }
  const auto found =
      std::find_if(kTags.begin(), kTags.end(), [&](const Tag& one) { return one.name == tag.text; });
  if (found == kTags.end()) fail_tag(tag, end_tags);
  open_tags_.push_back({tag.text, line});
  take();
  auto statement = (this->*found->parse)(line);
  open_tags_.pop_back();
  return statement;
}

std::unique_ptr<Statement> Parser::parse_if(int line) {
  auto statement = std::make_unique<IfStatement>(line);
  while (true) {
    Branch branch;
    branch.condition = parse_tuple(Condition::kNotAllowed);
    branch.body = parse_block({"elif", "else", "endif"});
    statement->branches.push_back(std::move(branch));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      statement->branches.push_back({nullptr, parse_block({"endif"})});
    }
    take();  // endif
    return statement;
  }
}

std::unique_ptr<Statement> Parser::parse_for(int line) {
  auto statement = std::make_unique<ForStatement>(line);
  statement->target = parse_target("in", false);
  if (names_target(*statement->target, "loop"))
    fail(line, "a for cannot assign to the special variable 'loop'");
  if (!skip_name("in")) fail(current().line, "expected 'in' in the for, got {}", describe(current()));
  statement->iterable = parse_tuple(Condition::kNotAllowed, "recursive");
  if (skip_name("if")) {
    statement->filter = parse_expression();
    statement->filter_target = copy_target(*statement->target);
  }
  statement->is_recursive = skip_name("recursive");
  ++num_open_loops_;
  statement->body = parse_block({"endfor", "else"});
  --num_open_loops_;
  if (skip_name("else")) statement->otherwise = parse_block({"endfor"});
  take();  // endfor
  return statement;
}

std::unique_ptr<Statement> Parser::parse_set(int line) {
  ExprPtr target = parse_target({}, true);
  if (skip_operator("=")) {
    auto statement = std::make_unique<SetStatement>(line);
    statement->target = std::move(target);
    statement->value = parse_tuple(Condition::kAllowed);
    return statement;
  }
  auto statement = std::make_unique<SetBlockStatement>(line);
  statement->target = std::move(target);
  if (current().is_operator("|")) statement->filter = parse_filter_chain(make(ExprKind::kCapturedText, line));
  if (current().kind != TokenKind::kBlockEnd && !current().is_operator(":"))
    fail(current().line, "expected '=' or '%}}' in the set, got {}", describe(current()));
  statement->body = parse_block({"endset"});
  take();
  return statement;
}

void Parser::parse_parameters(MacroDefinition& macro) {
  expect_operator("(", "before the parameters");
  while (!current().is_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",", "between the parameters");
    Parameter parameter;
    const int line = current().line;
    parameter.name = expect_name("the name of a parameter");
    const bool has_fallback = skip_operator("=");
    if (has_fallback) parameter.fallback = parse_expression();
    if (!has_fallback && !macro.parameters.empty() && macro.parameters.back().fallback != nullptr)
      fail(line, "the parameter '{}' needs a default, because the one before it has one", parameter.name);
    macro.parameters.push_back(std::move(parameter));
  }
  take();
}

// break and continue cannot leave a macro, a call block or a generation block.
Block Parser::parse_function_body(Names end_tags) {
  const int outer_loops = std::exchange(num_open_loops_, 0);
  Block body = parse_block(end_tags);
  num_open_loops_ = outer_loops;
  take();
  return body;
}

std::unique_ptr<Statement> Parser::parse_macro(int line) {
  auto statement = std::make_unique<MacroStatement>(line);
  statement->macro.line = line;
  statement->macro.name = expect_name("the name of the macro");
  parse_parameters(statement->macro);
  statement->macro.body = parse_function_body({"endmacro"});
  return statement;
}

std::unique_ptr<Statement> Parser::parse_call_block(int line) {
  auto statement = std::make_unique<CallBlockStatement>(line);
  statement->caller.line = line;
  if (current().is_operator("(")) parse_parameters(statement->caller);
  statement->call = parse_expression();
  if (statement->call->kind != ExprKind::kCall) fail(line, "expected a call of a macro in the call tag");
  statement->caller.body = parse_function_body({"endcall"});
  return statement;
}

std::unique_ptr<Statement> Parser::parse_filter_block(int line) {
  auto statement = std::make_unique<FilterBlockStatement>(line);
  statement->filter = parse_filter_chain(parse_one_filter(make(ExprKind::kCapturedText, line)));
  statement->body = parse_block({"endfilter"});
  take();
  return statement;
}

std::unique_ptr<Statement> Parser::parse_with(int line) {
  auto statement = std::make_unique<WithStatement>(line);
  while (current().kind != TokenKind::kBlockEnd) {
    if (!statement->targets.empty()) expect_operator(",", "between the variables of the with");
    statement->targets.push_back(parse_target({}, false));
    expect_operator("=", "behind the variable of the with");
    statement->values.push_back(parse_expression());
  }
  statement->body = parse_block({"endwith"});
  take();
  return statement;
}

std::unique_ptr<Statement> Parser::parse_generation(int line) {
  auto statement = std::make_unique<WithStatement>(line);
  statement->body = parse_function_body({"endgeneration"});
  return statement;
}

std::unique_ptr<Statement> Parser::parse_loop_control(int line, StatementKind kind) {
  if (num_open_loops_ == 0) fail(line, "break and continue belong inside a for");
  if (kind == StatementKind::kBreak) return std::make_unique<BreakStatement>(line);
  return std::make_unique<ContinueStatement>(line);
}

}  // namespace lockstep::serving::jinja
