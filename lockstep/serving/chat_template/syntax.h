#pragma once
// The tree of a parsed template. Names are slots: scopes.h turns them into (functions outwards, slot) pairs
// exactly as Jinja's compiler scopes them, so rendering never searches for a name.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

struct FilterEntry;
struct TestEntry;
struct Expr;
struct Statement;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<std::unique_ptr<Statement>>;

// The root, a macro, a call block's body and a recursive loop are functions: each activation has its own
// slots.
struct SlotRef {
  int num_functions_outwards = 0;
  int slot = -1;
};

enum class ExprKind : uint8_t {
  kConstant,         // constant
  kName,             // name, ref
  kNamespaceTarget,  // left of an assignment: name.attribute; ref
  kAttribute,        // operands[0].name
  kItem,             // operands[0][operands[1]]
  kSlice,            // operands[0][operands[1]:operands[2]:operands[3]], the last three may be null
  kCall,             // operands[0](arguments)
  kFilter,           // operands[0] | filter(arguments); operands[0] may be kCapturedText
  kTest,             // operands[0] is test(arguments)
  kList,
  kTuple,
  kDict,  // operands alternate: key, value
  kNot,
  kNegate,
  kPlus,
  kBinary,  // binary_op
  kAnd,
  kOr,
  kConcatenate,   // any number of operands
  kCompare,       // operands[0] compare_ops[0] operands[1] compare_ops[1] ...
  kConditional,   // operands: condition, value, value otherwise (may be null)
  kCapturedText,  // the body of a filter block or set block
};

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr spread;           // *expression
  ExprPtr spread_keywords;  // **expression
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 0;
  int height = 1;  // of the tree, for the parser's limit
  Value constant;
  std::string name;
  std::string attribute;
  SlotRef ref;
  std::vector<ExprPtr> operands;
  std::vector<CompareOp> compare_ops;
  BinaryOp binary_op = BinaryOp::kAdd;
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
  std::unique_ptr<Arguments> arguments;
};

// What happens to one slot when a scope is entered.
struct SlotLoad {
  enum class From : uint8_t {
    kNothing,   // starts without a value
    kOuter,     // starts with the value of the outer scope's variable of that name
    kVariable,  // starts with the rendering's variable or global function of that name
  };
  From from = From::kNothing;
  int slot = -1;
  SlotRef outer;
  std::string variable;
};
using Scope = std::vector<SlotLoad>;

enum class StatementKind : uint8_t {
  kText,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kBreak,
  kContinue,
};

struct Statement {
  Statement(StatementKind of_kind, int at_line) : kind(of_kind), line(at_line) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;
  StatementKind kind;
  int line;
};

template <StatementKind kOf>
struct StatementOf : Statement {
  explicit StatementOf(int at_line) : Statement(kOf, at_line) {}
};

struct TextStatement final : StatementOf<StatementKind::kText> {
  using StatementOf::StatementOf;
  std::string text;
};

struct OutputStatement final : StatementOf<StatementKind::kOutput> {
  using StatementOf::StatementOf;
  ExprPtr value;
};

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

struct IfStatement final : StatementOf<StatementKind::kIf> {
  using StatementOf::StatementOf;
  std::vector<Branch> branches;
};

struct ForStatement final : StatementOf<StatementKind::kFor> {
  using StatementOf::StatementOf;
  ExprPtr target, iterable;
  ExprPtr filter_target,
      filter;  // `for target in iterable if filter`; the filter has its own copy of the target
  Block body, otherwise;
  bool is_recursive = false;
  Scope body_scope, filter_scope, otherwise_scope;
  SlotRef loop;       // the variable `loop`
  int num_slots = 0;  // of its function, when recursive
};

struct SetStatement final : StatementOf<StatementKind::kSet> {
  using StatementOf::StatementOf;
  ExprPtr target, value;
};

struct SetBlockStatement final : StatementOf<StatementKind::kSetBlock> {
  using StatementOf::StatementOf;
  ExprPtr target;
  ExprPtr filter;  // a chain of filters on kCapturedText, or null
  Block body;
  Scope scope;
};

struct Parameter {
  std::string name;
  SlotRef ref;
  ExprPtr fallback;  // null: undefined
};

struct MacroDefinition {
  std::string name;  // empty: the body of a call block
  int line = 0;
  std::vector<Parameter> parameters;
  Block body;
  Scope scope;
  int num_slots = 0;
  bool has_caller_parameter = false;  // written among the parameters
  bool uses_caller = false;
  SlotRef caller, kwargs, varargs;  // slot -1: the body does not use it
};

struct MacroStatement final : StatementOf<StatementKind::kMacro> {
  using StatementOf::StatementOf;
  MacroDefinition macro;
  SlotRef target;
};

struct CallBlockStatement final : StatementOf<StatementKind::kCallBlock> {
  using StatementOf::StatementOf;
  ExprPtr call;
  MacroDefinition caller;
};

struct FilterBlockStatement final : StatementOf<StatementKind::kFilterBlock> {
  using StatementOf::StatementOf;
  ExprPtr filter;
  Block body;
  Scope scope;
};

// Also {% generation %}, which is a scope without targets.
struct WithStatement final : StatementOf<StatementKind::kWith> {
  using StatementOf::StatementOf;
  std::vector<ExprPtr> targets, values;
  Block body;
  Scope scope;
};

using BreakStatement = StatementOf<StatementKind::kBreak>;
using ContinueStatement = StatementOf<StatementKind::kContinue>;

struct Program {
  Block body;
  Scope scope;
  int num_slots = 0;
};

inline const std::string& macro_name(const Value& macro) {
  return macro.ref<std::shared_ptr<const Macro>>()->definition->name;
}

}  // namespace lockstep::serving::jinja
