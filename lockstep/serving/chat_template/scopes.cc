#include "lockstep/serving/chat_template/scopes.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "lockstep/serving/chat_template/functions.h"
#include "lockstep/serving/chat_template/heap.h"

namespace lockstep::serving::jinja {
namespace {

struct Function {
  int depth = 0;
  int num_slots = 0;
};

struct Place {
  const Function* function = nullptr;
  int slot = -1;
};

// The slots that the names of one scope have, shared by the branches of its ifs.
struct ScopeSlots {
  Function* function = nullptr;
  std::map<std::string, int> by_name;

  int slot_of(const std::string& name) {
    const auto [found, is_new] = by_name.try_emplace(name, function->num_slots);
    if (is_new) ++function->num_slots;
    return found->second;
  }
};

struct Load {
  SlotLoad::From from = SlotLoad::From::kNothing;
  bool is_parameter = false;  // the construct itself sets it
  Place outer;
  std::string variable;
};

struct Name {
  Load load;
  bool is_stored = false;
};
using Names = std::map<std::string, Name, std::less<>>;

// The names of one scope, as the analysis finds them in the order of the source.
class Symbols {
 public:
  Symbols(const Symbols* outer, ScopeSlots* slots) : outer_(outer), slots_(slots) {}

  Function* function() const { return slots_->function; }

  void load(const std::string& name) {
    if (!find(name)) set(name, {{SlotLoad::From::kVariable, false, {}, name}, false});
  }

  void store(const std::string& name) {
    const auto known = names_.find(name);
    if (known == names_.end())
      set(name, {start_of(name, Load{}), true});
    else if (!known->second.is_stored)
      set(name, {known->second.load, true});
  }

  void declare_parameter(const std::string& name) {
    set(name, {{SlotLoad::From::kNothing, true, {}, {}}, true});
  }

  // A branch of an if: begin() before it, end() takes what it changed out again.
  size_t begin_branch() const { return journal_.size(); }
  Names end_branch(size_t mark) {
    Names changed;
    for (; journal_.size() > mark; journal_.pop_back()) {
      auto& [name, before] = journal_.back();
      const auto known = names_.find(name);
      changed.try_emplace(name, known->second);
      if (before)
        known->second = std::move(*before);
      else
        names_.erase(known);
    }
    return changed;
  }

  // After an if: what only some branch stored may not have been stored, so it starts with what it was before.
  void merge_branches(const std::vector<Names>& branches) {
    std::set<std::string> newly_stored;
    for (const Names& branch : branches)
      for (const auto& [name, changed] : branch)
        if (changed.is_stored && !is_stored(name)) newly_stored.insert(name);
    for (const Names& branch : branches) {
      for (const auto& [name, changed] : branch) {
        Name merged{changed.load, changed.is_stored || is_stored(name)};
        if (newly_stored.contains(name))
          merged.load = start_of(name, {SlotLoad::From::kVariable, false, {}, name});
        set(name, std::move(merged));
      }
    }
  }

  SlotRef ref(const std::string& name) const {
    const auto place = find(name);
    LOCKSTEP_CHECK(place.has_value(), "the name {} was not analysed, in a function of depth {}", name,
                   function()->depth);
    return from_here(*place);
  }

  // Whether the template itself gives the name a value.
  bool assigns(const std::string& name) const {
    for (const Symbols* at = this; at != nullptr; at = at->outer_)
      if (const auto known = at->names_.find(name); known != at->names_.end()) return known->second.is_stored;
    return false;
  }

  Scope scope() const {
    Scope scope;
    for (const auto& [name, known] : names_) {
      if (known.load.is_parameter) continue;
      SlotLoad out;
      out.from = known.load.from;
      out.slot = slots_->slot_of(name);
      out.variable = known.load.variable;
      if (out.from == SlotLoad::From::kOuter) out.outer = from_here(known.load.outer);
      scope.push_back(std::move(out));
    }
    return scope;
  }

 private:
  bool is_stored(const std::string& name) const {
    const auto known = names_.find(name);
    return known != names_.end() && known->second.is_stored;
  }

  std::optional<Place> find(const std::string& name) const {
    for (const Symbols* at = this; at != nullptr; at = at->outer_)
      if (at->names_.contains(name)) return Place{at->slots_->function, at->slots_->slot_of(name)};
    return std::nullopt;
  }

  // Where a stored name starts: with the outer variable of that name, if there is one.
  Load start_of(const std::string& name, Load otherwise) const {
    const auto outer = outer_ != nullptr ? outer_->find(name) : std::nullopt;
    return outer ? Load{SlotLoad::From::kOuter, false, *outer, {}} : otherwise;
  }

  void set(const std::string& name, Name changed) {
    slots_->slot_of(name);
    const auto [known, is_new] = names_.try_emplace(name);
    journal_.emplace_back(name, is_new ? std::nullopt : std::optional(std::move(known->second)));
    known->second = std::move(changed);
  }

  SlotRef from_here(const Place& place) const {
    return {function()->depth - place.function->depth, place.slot};
  }

  const Symbols* outer_;
  ScopeSlots* slots_;
  Names names_;
  std::vector<std::pair<std::string, std::optional<Name>>> journal_;  // what names_ held before each change
};

template <class T, class Visit>
void for_each_operand(T& expr, Visit visit) {
  const auto look = [&](auto& part) {
    if (part != nullptr) visit(*part);
  };
  for (auto& operand : expr.operands) look(operand);
  if (expr.arguments == nullptr) return;
  for (auto& value : expr.arguments->positional) look(value);
  for (auto& [name, value] : expr.arguments->keywords) look(value);
  look(expr.arguments->spread);
  look(expr.arguments->spread_keywords);
}

// Phase one: which names the statements of one scope load and store, in the order of the source.
class Analysis {
 public:
  explicit Analysis(Symbols& symbols) : symbols_(symbols) {}

  void read(const Expr* expr) {
    if (expr == nullptr) return;
    if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kNamespaceTarget) symbols_.load(expr->name);
    for_each_operand(*expr, [&](const Expr& operand) { read(&operand); });
  }

  void write(const Expr& target) {
    if (target.kind == ExprKind::kName) symbols_.store(target.name);
    if (target.kind == ExprKind::kNamespaceTarget) symbols_.load(target.name);
    for (const ExprPtr& item : target.operands) write(*item);
  }

  void declare(const Expr& target) {
    if (target.kind == ExprKind::kName) symbols_.declare_parameter(target.name);
    for (const ExprPtr& item : target.operands) declare(*item);
  }

  void read(const Block& block) {
    for (const auto& statement : block) read(*statement);
  }

 private:
  void read(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::kOutput:
        return read(static_cast<const OutputStatement&>(statement).value.get());
      case StatementKind::kIf:
        return read_if(static_cast<const IfStatement&>(statement));
      case StatementKind::kFor:
        return read(static_cast<const ForStatement&>(statement).iterable.get());
      case StatementKind::kSet:
        read(static_cast<const SetStatement&>(statement).value.get());
        return write(*static_cast<const SetStatement&>(statement).target);
      case StatementKind::kSetBlock:
        return write(*static_cast<const SetBlockStatement&>(statement).target);
      case StatementKind::kMacro:
        return symbols_.store(static_cast<const MacroStatement&>(statement).macro.name);
      case StatementKind::kCallBlock:
        return read(static_cast<const CallBlockStatement&>(statement).call.get());
      case StatementKind::kFilterBlock:
        return read(static_cast<const FilterBlockStatement&>(statement).filter.get());
      case StatementKind::kWith:
        for (const ExprPtr& value : static_cast<const WithStatement&>(statement).values) read(value.get());
        return;
      case StatementKind::kText:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        return;
    }
  }

  // Jinja merges three branches: if, all elifs together (each an if inside the one before), and else.
  void read_if(const IfStatement& statement) {
    read(statement.branches.front().condition.get());
    const auto branch_of = [&](auto read_it) {
      const size_t mark = symbols_.begin_branch();
      read_it();
      return symbols_.end_branch(mark);
    };
    std::vector<Names> branches;
    branches.push_back(branch_of([&] { read(statement.branches.front().body); }));
    branches.push_back(branch_of([&] {
      for (size_t i = 1; i < statement.branches.size(); ++i) {
        const Branch& branch = statement.branches[i];
        if (branch.condition == nullptr) continue;
        read(branch.condition.get());
        symbols_.merge_branches({branch_of([&] { read(branch.body); })});
      }
    }));
    branches.push_back(branch_of([&] {
      if (statement.branches.back().condition == nullptr) read(statement.branches.back().body);
    }));
    symbols_.merge_branches(branches);
  }

  Symbols& symbols_;
};

// Which of caller, kwargs and varargs a macro's body uses before it assigns them, macros inside it included.
class SpecialNames {
 public:
  bool uses(std::string_view name) const { return used_.contains(name); }

  void scan(const Block& block) {
    for (const auto& statement : block) scan(*statement);
  }

 private:
  void load(const Expr* expr) {
    if (expr == nullptr) return;
    if (expr->kind == ExprKind::kName && open_.contains(expr->name)) used_.insert(expr->name);
    for_each_operand(*expr, [&](const Expr& operand) { load(&operand); });
  }

  void store(const Expr& target) {
    if (target.kind == ExprKind::kName) open_.erase(target.name);
    for (const ExprPtr& item : target.operands) store(*item);
  }

  void scan(const MacroDefinition& macro) {
    for (const Parameter& parameter : macro.parameters) open_.erase(parameter.name);
    for (const Parameter& parameter : macro.parameters) load(parameter.fallback.get());
    scan(macro.body);
  }

  void scan(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::kOutput:
        return load(static_cast<const OutputStatement&>(statement).value.get());
      case StatementKind::kIf:
        for (const Branch& branch : static_cast<const IfStatement&>(statement).branches) {
          load(branch.condition.get());
          scan(branch.body);
        }
        return;
      case StatementKind::kFor: {
        const auto& loop = static_cast<const ForStatement&>(statement);
        store(*loop.target);
        load(loop.iterable.get());
        scan(loop.body);
        scan(loop.otherwise);
        return load(loop.filter.get());
      }
      case StatementKind::kSet:
        store(*static_cast<const SetStatement&>(statement).target);
        return load(static_cast<const SetStatement&>(statement).value.get());
      case StatementKind::kSetBlock: {
        const auto& set = static_cast<const SetBlockStatement&>(statement);
        store(*set.target);
        load(set.filter.get());
        return scan(set.body);
      }
      case StatementKind::kMacro:
        return scan(static_cast<const MacroStatement&>(statement).macro);
      case StatementKind::kCallBlock:
        load(static_cast<const CallBlockStatement&>(statement).call.get());
        return scan(static_cast<const CallBlockStatement&>(statement).caller);
      case StatementKind::kFilterBlock:
        scan(static_cast<const FilterBlockStatement&>(statement).body);
        return load(static_cast<const FilterBlockStatement&>(statement).filter.get());
      case StatementKind::kWith: {
        const auto& with = static_cast<const WithStatement&>(statement);
        for (const ExprPtr& target : with.targets) store(*target);
        for (const ExprPtr& value : with.values) load(value.get());
        return scan(with.body);
      }
      case StatementKind::kText:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        return;
    }
  }

  std::set<std::string, std::less<>> open_ = {"caller", "kwargs", "varargs"};
  std::set<std::string, std::less<>> used_;
};

// Phase two: writes the slots into the tree, scope by scope.
class Resolver {
 public:
  void resolve(Program& program) {
    Function root;
    ScopeSlots slots{&root, {}};
    Symbols symbols(nullptr, &slots);
    Analysis(symbols).read(program.body);
    resolve(program.body, symbols);
    program.scope = symbols.scope();
    program.num_slots = root.num_slots;
  }

 private:
  void resolve(Expr* expr, const Symbols& symbols) {
    if (expr == nullptr) return;
    if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kNamespaceTarget)
      expr->ref = symbols.ref(expr->name);
    if (expr->kind == ExprKind::kCall) refuse_unsupported(*expr->operands.front(), symbols);
    for_each_operand(*expr, [&](Expr& operand) { resolve(&operand, symbols); });
  }

  // A global function that only Jinja has, unless the template assigns the name itself.
  static void refuse_unsupported(const Expr& callee, const Symbols& symbols) {
    if (callee.kind != ExprKind::kName || symbols.assigns(callee.name)) return;
    const FunctionEntry* function = find_function(callee.name);
    if (function == nullptr || function->call != nullptr) return;
    throw Failure{fmt::format("the function '{}' is not supported in chat templates", callee.name),
                  callee.line};
  }

  void resolve(Block& block, const Symbols& symbols) {
    for (const auto& statement : block) resolve(*statement, symbols);
  }

  void resolve(Statement& statement, const Symbols& symbols) {
    switch (statement.kind) {
      case StatementKind::kOutput:
        return resolve(static_cast<OutputStatement&>(statement).value.get(), symbols);
      case StatementKind::kIf:
        for (Branch& branch : static_cast<IfStatement&>(statement).branches) {
          resolve(branch.condition.get(), symbols);
          resolve(branch.body, symbols);
        }
        return;
      case StatementKind::kFor:
        return resolve_for(static_cast<ForStatement&>(statement), symbols);
      case StatementKind::kSet:
        resolve(static_cast<SetStatement&>(statement).value.get(), symbols);
        return resolve(static_cast<SetStatement&>(statement).target.get(), symbols);
      case StatementKind::kSetBlock: {
        auto& set = static_cast<SetBlockStatement&>(statement);
        resolve(set.target.get(), symbols);
        return resolve_scope(set.body, set.filter.get(), set.scope, symbols);
      }
      case StatementKind::kMacro: {
        auto& macro = static_cast<MacroStatement&>(statement);
        resolve_macro(macro.macro, symbols);
        macro.target = symbols.ref(macro.macro.name);
        return;
      }
      case StatementKind::kCallBlock: {
        auto& block = static_cast<CallBlockStatement&>(statement);
        resolve(block.call.get(), symbols);
        return resolve_macro(block.caller, symbols);
      }
      case StatementKind::kFilterBlock: {
        auto& block = static_cast<FilterBlockStatement&>(statement);
        return resolve_scope(block.body, block.filter.get(), block.scope, symbols);
      }
      case StatementKind::kWith:
        return resolve_with(static_cast<WithStatement&>(statement), symbols);
      case StatementKind::kText:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        return;
    }
  }

  // The body of a set or filter block; its filters see the scope's names.
  void resolve_scope(Block& body, Expr* filter, Scope& scope, const Symbols& outer) {
    ScopeSlots slots{outer.function(), {}};
    Symbols symbols(&outer, &slots);
    Analysis analysis(symbols);
    analysis.read(body);
    analysis.read(filter);
    resolve(body, symbols);
    resolve(filter, symbols);
    scope = symbols.scope();
  }

  void resolve_with(WithStatement& with, const Symbols& outer) {
    for (const ExprPtr& value : with.values) resolve(value.get(), outer);
    ScopeSlots slots{outer.function(), {}};
    Symbols symbols(&outer, &slots);
    Analysis analysis(symbols);
    for (const ExprPtr& target : with.targets) analysis.declare(*target);
    analysis.read(with.body);
    for (const ExprPtr& target : with.targets) resolve(target.get(), symbols);
    resolve(with.body, symbols);
    with.scope = symbols.scope();
  }

  void resolve_for(ForStatement& loop, const Symbols& outer) {
    resolve(loop.iterable.get(), outer);
    Function own{outer.function()->depth + 1, 0};
    Function* function = loop.is_recursive ? &own : outer.function();
    resolve_for_body(loop, outer, function);
    if (loop.filter != nullptr) resolve_for_filter(loop, outer, function);
    ScopeSlots slots{function, {}};
    Symbols symbols(&outer, &slots);
    Analysis(symbols).read(loop.otherwise);
    resolve(loop.otherwise, symbols);
    loop.otherwise_scope = symbols.scope();
    loop.num_slots = own.num_slots;
  }

  void resolve_for_body(ForStatement& loop, const Symbols& outer, Function* function) {
    ScopeSlots slots{function, {}};
    Symbols symbols(&outer, &slots);
    symbols.declare_parameter("loop");
    Analysis analysis(symbols);
    analysis.declare(*loop.target);
    analysis.read(loop.body);
    resolve(loop.target.get(), symbols);
    resolve(loop.body, symbols);
    loop.loop = symbols.ref("loop");
    loop.body_scope = symbols.scope();
  }

  void resolve_for_filter(ForStatement& loop, const Symbols& outer, Function* function) {
    ScopeSlots slots{function, {}};
    Symbols symbols(&outer, &slots);
    Analysis analysis(symbols);
    analysis.declare(*loop.filter_target);
    analysis.read(loop.filter.get());
    resolve(loop.filter_target.get(), symbols);
    resolve(loop.filter.get(), symbols);
    loop.filter_scope = symbols.scope();
  }

  void resolve_macro(MacroDefinition& macro, const Symbols& outer) {
    Function function{outer.function()->depth + 1, 0};
    ScopeSlots slots{&function, {}};
    Symbols symbols(&outer, &slots);
    SpecialNames special;
    special.scan(macro.body);
    const auto is_parameter = [&](std::string_view name) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [&](const Parameter& parameter) { return parameter.name == name; });
    };
    macro.has_caller_parameter = is_parameter("caller");
    macro.uses_caller = special.uses("caller");
    for (const Parameter& parameter : macro.parameters) {
      if (parameter.name == "caller" && macro.uses_caller && parameter.fallback == nullptr)
        throw Failure{"the parameter 'caller' of a macro needs a default, or must be left out", macro.line};
      symbols.declare_parameter(parameter.name);
    }
    constexpr std::array<std::string_view, 3> kSpecial = {"caller", "kwargs", "varargs"};
    for (const std::string_view name : kSpecial)
      if (special.uses(name) && !is_parameter(name)) symbols.declare_parameter(std::string(name));

    Analysis analysis(symbols);
    for (const Parameter& parameter : macro.parameters) analysis.read(parameter.fallback.get());
    analysis.read(macro.body);
    for (Parameter& parameter : macro.parameters) {
      parameter.ref = symbols.ref(parameter.name);
      resolve(parameter.fallback.get(), symbols);
    }
    if (macro.uses_caller && !macro.has_caller_parameter) macro.caller = symbols.ref("caller");
    if (special.uses("kwargs") && !is_parameter("kwargs")) macro.kwargs = symbols.ref("kwargs");
    if (special.uses("varargs") && !is_parameter("varargs")) macro.varargs = symbols.ref("varargs");
    resolve(macro.body, symbols);
    macro.scope = symbols.scope();
    macro.num_slots = function.num_slots;
  }
};

}  // namespace

void resolve_names(Program& program) { Resolver().resolve(program); }

}  // namespace lockstep::serving::jinja
