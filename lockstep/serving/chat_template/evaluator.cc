// The interpreter's half for expressions and calls.
#include <algorithm>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/filters.h"
#include "lockstep/serving/chat_template/functions.h"
#include "lockstep/serving/chat_template/interpreter.h"
#include "lockstep/serving/chat_template/methods.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/value_tests.h"

namespace lockstep::serving::jinja {

Value Interpreter::evaluate(const Expr& expr, Env& env) {
  const Level level(*this);
  heap_.step();
  heap_.line = expr.line;
  return evaluate_kind(expr, env);
}

Value Interpreter::evaluate_kind(const Expr& expr, Env& env) {
  const auto operand = [&](size_t i) { return evaluate(*expr.operands[i], env); };
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
    case ExprKind::kNamespaceTarget:
      return evaluate_name(expr, env);
    case ExprKind::kAttribute: {
      const Value object = operand(0);
      heap_.line = expr.line;
      return get_attribute(heap_, object, expr.name);
    }
    case ExprKind::kItem: {
      const Value object = operand(0);
      const Value key = operand(1);
      heap_.line = expr.line;
      return get_item(heap_, object, key);
    }
    case ExprKind::kSlice:
      return evaluate_slice(expr, env);
    case ExprKind::kCall:
      return evaluate_call(expr, env, {});
    case ExprKind::kFilter:
      return evaluate_filter(expr, env);
    case ExprKind::kTest: {
      const Value subject = operand(0);
      const CallArguments arguments = evaluate_arguments(*expr.arguments, env);
      heap_.line = expr.line;
      return Value::boolean(run_test(heap_, *expr.test, subject, arguments));
    }
    case ExprKind::kList:
    case ExprKind::kTuple:
      return evaluate_items(expr, env);
    case ExprKind::kDict:
      return evaluate_dict(expr, env);
    case ExprKind::kNot:
      return Value::boolean(!is_true(operand(0)));
    case ExprKind::kNegate:
      return unary(heap_, Sign::kMinus, operand(0));
    case ExprKind::kPlus:
      return unary(heap_, Sign::kPlus, operand(0));
    case ExprKind::kBinary: {
      const Value left = operand(0);
      const Value right = operand(1);
      heap_.line = expr.line;
      return binary(heap_, expr.binary_op, left, right);
    }
    case ExprKind::kAnd: {
      Value left = operand(0);
      return is_true(left) ? operand(1) : left;
    }
    case ExprKind::kOr: {
      Value left = operand(0);
      return is_true(left) ? left : operand(1);
    }
    case ExprKind::kConcatenate:
      return evaluate_concatenate(expr, env);
    case ExprKind::kCompare:
      return evaluate_compare(expr, env);
    case ExprKind::kConditional:
      return evaluate_conditional(expr, env);
    case ExprKind::kCapturedText:
      return captured_text_;
  }
  return {};
}

Value Interpreter::evaluate_name(const Expr& expr, Env& env) {
  const Value& value = slot(expr.ref, env);
  return value.is(Kind::kMissing) ? heap_.undefined_name(expr.name) : value;
}

Value Interpreter::evaluate_slice(const Expr& expr, Env& env) {
  const Value object = evaluate(*expr.operands[0], env);
  std::array<Value, 3> bounds;
  for (size_t i = 0; i < 3; ++i)
    if (expr.operands[i + 1] != nullptr) bounds[i] = evaluate(*expr.operands[i + 1], env);
  heap_.line = expr.line;
  return get_slice(heap_, object, bounds);
}

Value Interpreter::evaluate_items(const Expr& expr, Env& env) {
  Values items;
  items.reserve(expr.operands.size());
  for (const ExprPtr& operand : expr.operands) items.push_back(evaluate(*operand, env));
  return expr.kind == ExprKind::kList ? heap_.list(std::move(items)) : heap_.tuple(std::move(items));
}

Value Interpreter::evaluate_dict(const Expr& expr, Env& env) {
  std::vector<Dict::Entry> entries;
  entries.reserve(expr.operands.size() / 2);
  for (size_t i = 0; i < expr.operands.size(); i += 2) {
    Value key = evaluate(*expr.operands[i], env);
    entries.emplace_back(std::move(key), evaluate(*expr.operands[i + 1], env));
  }
  heap_.line = expr.line;
  return heap_.dict(std::move(entries));
}

Value Interpreter::evaluate_compare(const Expr& expr, Env& env) {
  Value left = evaluate(*expr.operands[0], env);
  for (size_t i = 0; i < expr.compare_ops.size(); ++i) {
    Value right = evaluate(*expr.operands[i + 1], env);
    heap_.line = expr.line;
    if (!compare(heap_, expr.compare_ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_concatenate(const Expr& expr, Env& env) {
  TextBuilder text(heap_);
  for (const ExprPtr& operand : expr.operands) append_str(text, evaluate(*operand, env));
  return text.finish();
}

Value Interpreter::evaluate_conditional(const Expr& expr, Env& env) {
  if (is_true(evaluate(*expr.operands[0], env))) return evaluate(*expr.operands[1], env);
  if (expr.operands[2] != nullptr) return evaluate(*expr.operands[2], env);
  return heap_.undefined_hint("the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate_filter(const Expr& expr, Env& env) {
  const Value subject = evaluate(*expr.operands[0], env);
  const CallArguments arguments = evaluate_arguments(*expr.arguments, env);
  heap_.line = expr.line;
  return expr.filter->call(heap_, subject, arguments);
}

CallArguments Interpreter::evaluate_arguments(const Arguments& arguments, Env& env) {
  CallArguments out;
  for (const ExprPtr& value : arguments.positional) out.positional.push_back(evaluate(*value, env));
  for (const auto& [name, value] : arguments.keywords) out.keywords.emplace_back(name, evaluate(*value, env));
  if (arguments.spread != nullptr) {
    const SharedValues more = iterate(heap_, evaluate(*arguments.spread, env));
    heap_.step(more.size());
    out.positional.insert(out.positional.end(), more.begin(), more.end());
  }
  if (arguments.spread_keywords == nullptr) return out;
  const Value more = evaluate(*arguments.spread_keywords, env);
  if (more.is(Kind::kUndefined)) heap_.fail_undefined(more);
  if (!more.is(Kind::kDict)) heap_.fail("what follows ** must be a mapping, not '{}'", type_name(more));
  for (const auto& [name, value] : more.dict().entries()) {
    heap_.step(1 + out.keywords.size() / 16);
    if (!name.is(Kind::kText)) heap_.fail("keywords must be strings, not '{}'", type_name(name));
    const bool is_known = std::any_of(arguments.keywords.begin(), arguments.keywords.end(),
                                      [&](const auto& known) { return known.first == name.view(); });
    if (is_known) heap_.fail("got multiple values for keyword argument '{}'", name.view());
    out.keywords.emplace_back(name.view(), value);
  }
  return out;
}

// `caller` is missing, or the body of the call block around this call.
Value Interpreter::evaluate_call(const Expr& expr, Env& env, const Value& caller) {
  const Value callee = evaluate(*expr.operands[0], env);
  CallArguments arguments = evaluate_arguments(*expr.arguments, env);
  if (!caller.is(Kind::kMissing)) arguments.keywords.emplace_back("caller", caller);
  heap_.line = expr.line;
  Value result = call(callee, arguments);
  heap_.line = expr.line;
  return result;
}

Value Interpreter::call(const Value& callee, CallArguments& arguments) {
  const Level level(*this);
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(*callee.ref<std::shared_ptr<const Macro>>(), arguments);
    case Kind::kMethod: {
      const BoundMethod& method = *callee.ref<std::shared_ptr<const BoundMethod>>();
      return method.method->call(heap_, method.self, arguments);
    }
    case Kind::kFunction: {
      const FunctionEntry& function = *callee.ref<const FunctionEntry*>();
      if (function.call == nullptr)
        heap_.fail("the function '{}' is not supported in chat templates", function.name);
      return function.call(heap_, arguments);
    }
    case Kind::kLoop: {
      const Loop& loop = *callee.ref<std::shared_ptr<Loop>>();
      const Signature signature(heap_, "loop", arguments, {"iterable"}, 1);
      if (!loop.statement->is_recursive) heap_.fail("the loop must be marked 'recursive' to be called");
      return run_recursive_loop(*loop.statement, signature.value(0), loop.depth0 + 1, *loop.env);
    }
    case Kind::kUndefined:
      heap_.fail_undefined(callee);
    default:
      heap_.fail("'{}' object is not callable", type_name(callee));
  }
}

Value Interpreter::call_macro(const Macro& macro, CallArguments& arguments) {
  const MacroDefinition& definition = *macro.definition;
  std::unique_ptr<Env> env = new_env(definition.num_slots, macro.env);
  std::string text = capture([&] {
    enter(definition.scope, *env);
    bind_parameters(definition, arguments, *env);
    execute(definition.body, *env);
  });
  release(std::move(env));
  return heap_.text(std::move(text));
}

void Interpreter::bind_parameters(const MacroDefinition& macro, CallArguments& arguments, Env& env) {
  auto& keywords = arguments.keywords;
  const auto take_keyword = [&](std::string_view name) {
    heap_.step(keywords.size() / 8);
    const auto found =
        std::find_if(keywords.begin(), keywords.end(), [&](const auto& one) { return one.first == name; });
    if (found == keywords.end()) return Value();
    Value value = std::move(found->second);
    keywords.erase(found);
    return value;
  };
  const size_t num_parameters = macro.parameters.size();
  const size_t num_given = std::min(arguments.positional.size(), num_parameters);
  for (size_t i = 0; i < num_parameters; ++i) {
    const Parameter& parameter = macro.parameters[i];
    slot(parameter.ref, env) = i < num_given ? arguments.positional[i] : take_keyword(parameter.name);
  }
  if (macro.caller.slot >= 0) {
    Value caller = take_keyword("caller");
    const bool is_there = !caller.is(Kind::kMissing) && !caller.is(Kind::kNone);
    slot(macro.caller, env) = is_there ? std::move(caller) : heap_.undefined_hint("No caller defined");
  }
  if (macro.kwargs.slot >= 0) {
    std::vector<Dict::Entry> rest;
    for (auto& [name, value] : keywords) rest.emplace_back(heap_.text(name), value);
    slot(macro.kwargs, env) = heap_.dict(std::move(rest));
  } else if (!keywords.empty()) {
    heap_.fail("macro '{}' takes no keyword argument '{}'", macro.name, keywords.front().first);
  }
  if (macro.varargs.slot >= 0) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_given);
    slot(macro.varargs, env) = heap_.tuple(Values(rest, arguments.positional.end()));
  } else if (arguments.positional.size() > num_parameters) {
    heap_.fail("macro '{}' takes not more than {} argument(s)", macro.name, num_parameters);
  }
  for (const Parameter& parameter : macro.parameters) {
    if (!slot(parameter.ref, env).is(Kind::kMissing)) continue;
    Value value = parameter.fallback != nullptr
                      ? evaluate(*parameter.fallback, env)
                      : heap_.undefined_hint(fmt::format("parameter '{}' was not provided", parameter.name));
    slot(parameter.ref, env) = std::move(value);
  }
}

}  // namespace lockstep::serving::jinja
