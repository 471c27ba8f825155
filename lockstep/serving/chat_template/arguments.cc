#include "lockstep/serving/chat_template/arguments.h"

#include <algorithm>

#include "lockstep/serving/chat_template/operators.h"

namespace lockstep::serving::jinja {

Signature::Signature(Heap& heap, std::string_view function, const CallArguments& arguments,
                     std::initializer_list<std::string_view> parameters, size_t num_required)
    : heap_(heap), function_(function), values_(parameters.size()) {
  if (arguments.positional.size() > parameters.size())
    heap.fail("{}() takes at most {} arguments ({} given)", function, parameters.size(),
              arguments.positional.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.keywords) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end() || name.empty())
      heap.fail("{}() got an unexpected keyword argument '{}'", function, name);
    Value& place = values_[static_cast<size_t>(found - parameters.begin())];
    if (!place.is(Kind::kMissing)) heap.fail("{}() got multiple values for argument '{}'", function, name);
    place = value;
  }
  for (size_t i = 0; i < num_required; ++i)
    if (!has(i)) heap.fail("{}() needs at least {} arguments ({} given)", function, num_required, i);
}

void Signature::fail_kind(size_t idx, std::string_view wanted) const {
  if (values_[idx].is(Kind::kUndefined)) heap_.fail_undefined(values_[idx]);
  heap_.fail("argument {} of {}() must be {}, not '{}'", idx + 1, function_, wanted, type_name(values_[idx]));
}

std::string_view Signature::text(size_t idx) const {
  if (!values_[idx].is(Kind::kText)) fail_kind(idx, "a string");
  return values_[idx].view();
}

Integer Signature::integer(size_t idx) const {
  if (!values_[idx].is_integral()) fail_kind(idx, "an integer");
  return values_[idx].to_integer();
}

bool Signature::flag(size_t idx) const { return has(idx) && is_true(values_[idx]); }

}  // namespace lockstep::serving::jinja
