#include "lockstep/serving/chat_template/interpreter.h"

#include <algorithm>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/functions.h"
#include "lockstep/serving/chat_template/printing.h"

namespace lockstep::serving::jinja {

// Python's generator behind `for x in items if test`: evaluated only when the next item is wanted.
class Interpreter::FilteredItems final : public ItemSource {
 public:
  FilteredItems(Interpreter& interpreter, const ForStatement& statement, SharedValues items, Env& env)
      : interpreter_(interpreter), statement_(statement), items_(std::move(items)), env_(env) {}

  bool next(Value& item) override {
    while (next_ < items_.size()) {
      const Value& candidate = items_[next_++];
      interpreter_.enter(statement_.filter_scope, env_);
      interpreter_.assign(*statement_.filter_target, candidate, env_);
      if (!is_true(interpreter_.evaluate(*statement_.filter, env_))) continue;
      item = candidate;
      return true;
    }
    return false;
  }

 private:
  Interpreter& interpreter_;
  const ForStatement& statement_;
  SharedValues items_;
  size_t next_ = 0;
  Env& env_;
};

Interpreter::Level::Level(Interpreter& interpreter) : interpreter_(interpreter) {
  if (++interpreter_.depth_ <= interpreter_.heap_.limits().max_depth) return;
  --interpreter_.depth_;
  interpreter_.heap_.fail("the template is nested deeper than {} levels (calls, blocks and expressions)",
                          interpreter_.heap_.limits().max_depth);
}

Interpreter::Interpreter(Heap& heap, const Program& program, const Value& variables)
    : heap_(heap), program_(program), variables_(variables) {}

std::string Interpreter::run() {
  const std::unique_ptr<Env> env = new_env(program_.num_slots, nullptr);
  return capture([&] {
    enter(program_.scope, *env);
    execute(program_.body, *env);
  });
}

std::string Interpreter::capture(const std::function<void()>& run) {
  TextBuilder text(heap_);
  TextBuilder* const outer = std::exchange(out_, &text);
  struct Restore {
    TextBuilder*& out;
    TextBuilder* outer;
    ~Restore() { out = outer; }
  } const restore{out_, outer};
  run();
  return text.take();
}

void Interpreter::write(std::string_view text) {
  const size_t max_bytes = heap_.limits().max_output_bytes;
  if (text.size() > max_bytes || out_->bytes().size() > max_bytes - text.size())
    heap_.fail("the template writes more than {} bytes", max_bytes);
  *out_ += text;
}

void Interpreter::write(const Value& value) {
  if (value.is(Kind::kText)) return write(value.view());
  if (value.is(Kind::kUndefined)) return;
  const Value text = to_text(heap_, value);
  write(text.view());
}

// What a filter block or a call block makes must be text already.
void Interpreter::write_text(const Value& value, int line) {
  heap_.line = line;
  if (!value.is(Kind::kText)) heap_.fail("the block makes no string, but '{}'", type_name(value));
  write(value.view());
}

std::unique_ptr<Env> Interpreter::new_env(int num_slots, Env* outer) {
  auto env = std::make_unique<Env>();
  const auto size = static_cast<size_t>(num_slots);
  env->charge = heap_.charge(sizeof(Env) + size * sizeof(Value));
  heap_.step(1 + size / 8);
  env->outer = outer;
  env->slots.resize(size);
  return env;
}

void Interpreter::release(std::unique_ptr<Env> env) {
  if (env->is_kept) kept_.push_back(std::move(env));
}

Value& Interpreter::slot(const SlotRef& ref, Env& env) {
  Env* at = &env;
  for (int i = 0; i < ref.num_functions_outwards; ++i) at = at->outer;
  return at->slots[static_cast<size_t>(ref.slot)];
}

void Interpreter::enter(const Scope& scope, Env& env) {
  heap_.step(scope.size() / 4);
  for (const SlotLoad& load : scope) {
    Value& place = env.slots[static_cast<size_t>(load.slot)];
    switch (load.from) {
      case SlotLoad::From::kNothing:
        place = Value();
        break;
      case SlotLoad::From::kOuter:
        place = slot(load.outer, env);
        break;
      case SlotLoad::From::kVariable: {
        const Value* variable = variables_.dict().find(load.variable);
        const FunctionEntry* function = variable == nullptr ? find_function(load.variable) : nullptr;
        place = variable != nullptr   ? *variable
                : function != nullptr ? Value(Value::Variant(function))
                                      : Value();
        break;
      }
    }
  }
}

Interpreter::Flow Interpreter::execute(const Block& block, Env& env) {
  for (const auto& statement : block)
    if (const Flow flow = execute(*statement, env); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, Env& env) {
  const Level level(*this);
  heap_.step();
  heap_.line = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      write(std::string_view(static_cast<const TextStatement&>(statement).text));
      return Flow::kNext;
    case StatementKind::kOutput:
      write(evaluate(*static_cast<const OutputStatement&>(statement).value, env));
      return Flow::kNext;
    case StatementKind::kIf:
      return execute_if(static_cast<const IfStatement&>(statement), env);
    case StatementKind::kFor:
      return execute_for(static_cast<const ForStatement&>(statement), env);
    case StatementKind::kSet: {
      const auto& set = static_cast<const SetStatement&>(statement);
      require_namespaces(*set.target, env);
      const Value value = evaluate(*set.value, env);
      heap_.line = set.line;
      assign(*set.target, value, env);
      return Flow::kNext;
    }
    case StatementKind::kSetBlock:
      return execute_set_block(static_cast<const SetBlockStatement&>(statement), env);
    case StatementKind::kMacro: {
      const auto& macro = static_cast<const MacroStatement&>(statement);
      slot(macro.target, env) = make_macro(macro.macro, env);
      return Flow::kNext;
    }
    case StatementKind::kCallBlock:
      execute_call_block(static_cast<const CallBlockStatement&>(statement), env);
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      return execute_filter_block(static_cast<const FilterBlockStatement&>(statement), env);
    case StatementKind::kWith:
      return execute_with(static_cast<const WithStatement&>(statement), env);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_if(const IfStatement& statement, Env& env) {
  for (const Branch& branch : statement.branches)
    if (branch.condition == nullptr || is_true(evaluate(*branch.condition, env)))
      return execute(branch.body, env);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_for(const ForStatement& statement, Env& env) {
  const Value iterable = evaluate(*statement.iterable, env);
  heap_.line = statement.line;
  if (!statement.is_recursive) return run_loop(statement, iterable, 0, env, env);
  write(run_recursive_loop(statement, iterable, 0, env));
  return Flow::kNext;
}

Value Interpreter::run_recursive_loop(const ForStatement& statement, const Value& iterable, int depth0,
                                      Env& definition) {
  const Level level(*this);
  std::unique_ptr<Env> env = new_env(statement.num_slots, &definition);
  std::string text = capture([&] { run_loop(statement, iterable, depth0, *env, definition); });
  release(std::move(env));
  return heap_.text(std::move(text));
}

// `env` holds the slots of the loop, `definition` is where the for stands (the same, unless it is recursive).
Interpreter::Flow Interpreter::run_loop(const ForStatement& statement, const Value& iterable, int depth0,
                                        Env& env, Env& definition) {
  const auto loop = std::make_shared<Loop>();
  struct EndLoop {
    Loop& loop;
    ~EndLoop() { loop.end(); }
  } const end_loop{*loop};
  const SharedValues items = iterate(heap_, iterable);
  loop->statement = &statement;
  loop->env = &definition;
  loop->depth0 = depth0;
  definition.is_kept = definition.is_kept || statement.is_recursive;
  if (statement.filter != nullptr) {
    loop->source = std::make_unique<FilteredItems>(*this, statement, items, env);
  } else {
    loop->source = std::make_unique<ValuesSource>(items);
    loop->length = static_cast<Integer>(items.size());
  }
  slot(statement.loop, env) = Value(Value::Variant(loop));
  bool completed = false;  // Jinja's else runs unless one body ran to its end
  run_loop_body(statement, *loop, env, completed);
  if (completed || statement.otherwise.empty()) return Flow::kNext;
  enter(statement.otherwise_scope, env);
  return execute(statement.otherwise, env);
}

Interpreter::Flow Interpreter::run_loop_body(const ForStatement& statement, Loop& loop, Env& env,
                                             bool& completed) {
  while (loop.advance()) {
    heap_.step();
    heap_.line = statement.line;
    assign(*statement.target, loop.current, env);
    enter(statement.body_scope, env);
    const Flow flow = execute(statement.body, env);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_with(const WithStatement& statement, Env& env) {
  enter(statement.scope, env);
  for (size_t i = 0; i < statement.targets.size(); ++i)
    assign(*statement.targets[i], evaluate(*statement.values[i], env), env);
  return execute(statement.body, env);
}

Interpreter::Flow Interpreter::execute_set_block(const SetBlockStatement& statement, Env& env) {
  Flow flow = Flow::kNext;
  enter(statement.scope, env);
  Value text = heap_.text(capture([&] { flow = execute(statement.body, env); }));
  if (flow != Flow::kNext) return flow;
  if (statement.filter != nullptr) {
    const Value outer_text = std::exchange(captured_text_, std::move(text));
    text = evaluate(*statement.filter, env);
    captured_text_ = outer_text;
  }
  heap_.line = statement.line;
  require_namespaces(*statement.target, env);
  assign(*statement.target, text, env);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_filter_block(const FilterBlockStatement& statement, Env& env) {
  Flow flow = Flow::kNext;
  enter(statement.scope, env);
  Value text = heap_.text(capture([&] { flow = execute(statement.body, env); }));
  if (flow != Flow::kNext) return flow;
  const Value outer_text = std::exchange(captured_text_, std::move(text));
  write_text(evaluate(*statement.filter, env), statement.line);
  captured_text_ = outer_text;
  return Flow::kNext;
}

void Interpreter::execute_call_block(const CallBlockStatement& statement, Env& env) {
  const Value caller = make_macro(statement.caller, env);
  write_text(evaluate_call(*statement.call, env, caller), statement.line);
}

Value Interpreter::make_macro(const MacroDefinition& macro, Env& env) {
  env.is_kept = true;
  return Value(Value::Variant(std::shared_ptr<const Macro>(std::make_shared<Macro>(Macro{&macro, &env}))));
}

void Interpreter::require_namespaces(const Expr& target, Env& env) {
  if (target.kind == ExprKind::kNamespaceTarget && !slot(target.ref, env).is(Kind::kNamespace))
    heap_.fail("'{}' is no namespace, so '{}.{}' cannot be assigned", target.name, target.name,
               target.attribute);
  for (const ExprPtr& item : target.operands) require_namespaces(*item, env);
}

void Interpreter::assign(const Expr& target, const Value& value, Env& env) {
  heap_.step();
  if (target.kind == ExprKind::kName) {
    slot(target.ref, env) = value;
    return;
  }
  if (target.kind == ExprKind::kNamespaceTarget) {
    auto& attributes = slot(target.ref, env).ref<std::shared_ptr<Namespace>>()->attributes;
    heap_.step(attributes.size() / 16);
    const auto found = std::find_if(attributes.begin(), attributes.end(), [&](const auto& attribute) {
      return attribute.first == target.attribute;
    });
    if (found != attributes.end())
      found->second = value;
    else
      attributes.emplace_back(target.attribute, value);
    return;
  }
  const SharedValues parts = iterate(heap_, value);
  if (parts.size() != target.operands.size())
    heap_.fail("cannot unpack {} values into {} variables", parts.size(), target.operands.size());
  for (size_t i = 0; i < parts.size(); ++i) assign(*target.operands[i], parts[i], env);
}

}  // namespace lockstep::serving::jinja
