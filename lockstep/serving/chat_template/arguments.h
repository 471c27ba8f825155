#pragma once
// The arguments of one call, and how a built-in function takes them apart as its Python signature would.
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

struct CallArguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

// Parameters in their order; the first `num_required` have no default. A parameter named "" is positional
// only.
class Signature {
 public:
  Signature(Heap& heap, std::string_view function, const CallArguments& arguments,
            std::initializer_list<std::string_view> parameters, size_t num_required = 0);

  bool has(size_t idx) const { return !values_[idx].is(Kind::kMissing); }
  const Value& value(size_t idx) const { return values_[idx]; }
  Value value_or(size_t idx, Value fallback) const { return has(idx) ? values_[idx] : std::move(fallback); }
  // These fail on a value of another kind, naming the function and the parameter.
  std::string_view text(size_t idx) const;
  Integer integer(size_t idx) const;
  Integer integer_or(size_t idx, Integer fallback) const { return has(idx) ? integer(idx) : fallback; }
  bool flag(size_t idx) const;  // false when absent

 private:
  [[noreturn]] void fail_kind(size_t idx, std::string_view wanted) const;

  Heap& heap_;
  std::string_view function_;
  Values values_;
};

}  // namespace lockstep::serving::jinja
