#pragma once
// Walks a parsed template once, with the variables of one rendering. Throws Failure.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/serving/chat_template/arguments.h"
#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/loop.h"
#include "lockstep/serving/chat_template/syntax.h"

namespace lockstep::serving::jinja {

// The slots of one activation of a function (the root, a macro, a call block's body, a recursive loop).
struct Env {
  Env* outer = nullptr;  // of the function around it
  Values slots;
  bool is_kept = false;  // a macro or loop refers to it: it lives as long as the rendering
  Charge charge;
};

class Interpreter {
 public:
  // `variables` is a dict value.
  Interpreter(Heap& heap, const Program& program, const Value& variables);
  std::string run();

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  class FilteredItems;
  // One level of evaluation, for as long as it lives.
  class Level {
   public:
    explicit Level(Interpreter& interpreter);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --interpreter_.depth_; }

   private:
    Interpreter& interpreter_;
  };

  // interpreter.cc: statements
  Flow execute(const Block& block, Env& env);
  Flow execute(const Statement& statement, Env& env);
  Flow execute_if(const IfStatement& statement, Env& env);
  Flow execute_for(const ForStatement& statement, Env& env);
  Flow execute_with(const WithStatement& statement, Env& env);
  Flow execute_set_block(const SetBlockStatement& statement, Env& env);
  Flow execute_filter_block(const FilterBlockStatement& statement, Env& env);
  void execute_call_block(const CallBlockStatement& statement, Env& env);
  Flow run_loop(const ForStatement& statement, const Value& iterable, int depth0, Env& env, Env& definition);
  Flow run_loop_body(const ForStatement& statement, Loop& loop, Env& env, bool& completed);
  Value run_recursive_loop(const ForStatement& statement, const Value& iterable, int depth0, Env& definition);
  void write(const Value& value);
  void write(std::string_view text);
  void write_text(const Value& value, int line);
  void enter(const Scope& scope, Env& env);
  Value& slot(const SlotRef& ref, Env& env);
  void assign(const Expr& target, const Value& value, Env& env);
  void require_namespaces(const Expr& target, Env& env);
  Value make_macro(const MacroDefinition& macro, Env& env);
  std::unique_ptr<Env> new_env(int num_slots, Env* outer);
  void release(std::unique_ptr<Env> env);
  // The text that `run` writes, which does not go to the output.
  std::string capture(const std::function<void()>& run);

  // evaluator.cc: expressions
  Value evaluate(const Expr& expr, Env& env);
  Value evaluate_kind(const Expr& expr, Env& env);
  Value evaluate_name(const Expr& expr, Env& env);
  Value evaluate_slice(const Expr& expr, Env& env);
  Value evaluate_items(const Expr& expr, Env& env);
  Value evaluate_dict(const Expr& expr, Env& env);
  Value evaluate_compare(const Expr& expr, Env& env);
  Value evaluate_concatenate(const Expr& expr, Env& env);
  Value evaluate_conditional(const Expr& expr, Env& env);
  Value evaluate_call(const Expr& expr, Env& env, const Value& caller);
  Value evaluate_filter(const Expr& expr, Env& env);
  CallArguments evaluate_arguments(const Arguments& arguments, Env& env);
  Value call(const Value& callee, CallArguments& arguments);
  Value call_macro(const Macro& macro, CallArguments& arguments);
  void bind_parameters(const MacroDefinition& macro, CallArguments& arguments, Env& env);

  Heap& heap_;
  const Program& program_;
  const Value& variables_;
  std::vector<std::unique_ptr<Env>> kept_;
  TextBuilder* out_ = nullptr;
  Value captured_text_;  // what kCapturedText means at this moment
  int depth_ = 0;
};

}  // namespace lockstep::serving::jinja
