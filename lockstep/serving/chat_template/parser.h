#pragma once
// Tokens to a tree. Refuses by name and line what Jinja has but chat templates do not.
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/lexer.h"
#include "lockstep/serving/chat_template/syntax.h"

namespace lockstep::serving::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Program parse();  // throws Failure

 private:
  using Names = std::initializer_list<std::string_view>;
  enum class Condition : uint8_t { kAllowed, kNotAllowed };  // whether `a if b else c` may stand here
  enum class Filters : uint8_t { kAllowed, kNotAllowed };
  struct OpenTag {
    std::string name;
    int line = 0;
  };
  // Counts how deep the recursion is, for as long as it lives.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.depth_; }

   private:
    Parser& parser_;
  };

  template <class... Args>
  [[noreturn]] static void fail(int line, fmt::format_string<Args...> format, Args&&... args) {
    throw Failure{fmt::format(format, std::forward<Args>(args)...), line};
  }
  [[noreturn]] void fail_tag(const Token& token, Names expected) const;

  const Token& current() const { return tokens_[next_]; }
  const Token& following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view symbol);
  void expect_operator(std::string_view symbol, std::string_view where);
  std::string expect_name(std::string_view what);
  void expect_block_end();

  // parser.cc
  Block parse_body(Names end_tags);  // up to one of these names behind a {%
  Block parse_block(Names end_tags);
  std::unique_ptr<Statement> parse_statement(Names end_tags);
  std::unique_ptr<Statement> parse_output();
  std::unique_ptr<Statement> parse_for(int line);
  std::unique_ptr<Statement> parse_if(int line);
  std::unique_ptr<Statement> parse_set(int line);
  std::unique_ptr<Statement> parse_macro(int line);
  std::unique_ptr<Statement> parse_call_block(int line);
  std::unique_ptr<Statement> parse_filter_block(int line);
  std::unique_ptr<Statement> parse_with(int line);
  std::unique_ptr<Statement> parse_generation(int line);
  std::unique_ptr<Statement> parse_loop_control(int line, StatementKind kind);
  void parse_parameters(MacroDefinition& macro);
  Block parse_function_body(Names end_tags);

  // parse_expressions.cc
  ExprPtr parse_expression(Condition condition = Condition::kAllowed);
  ExprPtr parse_tuple(Condition condition, std::string_view end_name = {});
  ExprPtr parse_target(std::string_view end_name, bool may_be_attribute);
  ExprPtr parse_simple_target(bool may_be_attribute);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_comparison();
  ExprPtr parse_sum();
  ExprPtr parse_concatenation();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(Filters filters);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_string();
  ExprPtr parse_parentheses();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_filter_chain(ExprPtr expr);
  ExprPtr parse_one_filter(ExprPtr expr);
  ExprPtr parse_test(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_call(ExprPtr callee);
  std::unique_ptr<Arguments> parse_arguments();
  void parse_argument(Arguments& arguments);
  std::string parse_dotted_name(std::string_view what);
  bool at_tuple_end(std::string_view end_name) const;

  // A node over its operands; fails where the tree gets too high.
  template <class... Operands>
  ExprPtr make(ExprKind kind, int line, Operands... operands) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    (expr->operands.push_back(std::move(operands)), ...);
    return with_height(std::move(expr));
  }
  ExprPtr make_constant(int line, Value value);
  static ExprPtr with_height(ExprPtr expr);

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int depth_ = 0;
  int num_open_loops_ = 0;  // that break and continue may leave
  std::vector<OpenTag> open_tags_;
};

}  // namespace lockstep::serving::jinja
