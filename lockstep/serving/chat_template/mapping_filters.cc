// map, select, reject and their attribute forms: a filter, test or attribute applied to each item.
#include <algorithm>
#include <array>
#include <functional>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/attribute_path.h"
#include "lockstep/serving/chat_template/filters.h"
#include "lockstep/serving/chat_template/operators.h"
#include "lockstep/serving/chat_template/value_tests.h"

namespace lockstep::serving::jinja {
namespace {

std::string_view name_argument(Heap& heap, const CallArguments& arguments, size_t idx,
                               std::string_view what) {
  const Value& name = arguments.positional[idx];
  if (!name.is(Kind::kText)) heap.fail("the name of a {} must be a string, not '{}'", what, type_name(name));
  return name.view();
}

CallArguments behind(const CallArguments& arguments, size_t num_taken) {
  CallArguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_taken),
                         arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

using Apply = std::function<void(const Value& item, Values& out)>;

Value for_each(Heap& heap, const Value& subject, const Apply& apply) {
  return generate(heap, [&](Values& out) {
    if (!is_true(subject)) return;
    for (const Value& item : iterate(heap, subject)) {
      heap.step();
      apply(item, out);
    }
  });
}

Value map_attribute(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const Signature signature(heap, "map", arguments, {"attribute", "default"});
  const AttributePath path(heap, signature.value(0));
  return for_each(heap, subject, [&](const Value& item, Values& out) {
    out.push_back(path.find(heap, item, signature.value(1)));
  });
}

Value map_filter(Heap& heap, const Value& subject, const CallArguments& arguments) {
  const auto is_attribute = [](const auto& keyword) { return keyword.first == "attribute"; };
  if (arguments.positional.empty() &&
      std::any_of(arguments.keywords.begin(), arguments.keywords.end(), is_attribute))
    return map_attribute(heap, subject, arguments);
  return for_each(heap, subject, [&](const Value& item, Values& out) {
    if (arguments.positional.empty()) heap.fail("map requires a filter argument");
    const std::string_view name = name_argument(heap, arguments, 0, "filter");
    const FilterEntry* filter = find_filter(name);
    if (filter == nullptr || filter->call == nullptr) heap.fail("there is no filter '{}' for map", name);
    out.push_back(filter->call(heap, item, behind(arguments, 1)));
  });
}

enum class Keep : uint8_t { kMatching, kOthers };
enum class Look : uint8_t { kAtItem, kAtAttribute };

template <Keep kKeep, Look kLook>
Value choose(Heap& heap, const Value& subject, const CallArguments& arguments) {
  constexpr size_t kNamePlace = kLook == Look::kAtAttribute ? 1 : 0;
  AttributePath path;
  if (kLook == Look::kAtAttribute && !arguments.positional.empty())
    path = AttributePath(heap, arguments.positional[0]);
  return for_each(heap, subject, [&](const Value& item, Values& out) {
    if (arguments.positional.size() < kNamePlace) heap.fail("Missing parameter for attribute name");
    const Value looked_at = path.find(heap, item);
    bool matches = false;
    if (arguments.positional.size() == kNamePlace) {
      matches = is_true(looked_at);
    } else {
      const std::string_view name = name_argument(heap, arguments, kNamePlace, "test");
      const TestEntry* test = find_test(name);
      if (test == nullptr) heap.fail("there is no test '{}'", name);
      matches = run_test(heap, *test, looked_at, behind(arguments, kNamePlace + 1));
    }
    if (matches == (kKeep == Keep::kMatching)) out.push_back(item);
  });
}

constexpr std::array kMappingFilters = {
    FilterEntry{"map", map_filter},
    FilterEntry{"reject", choose<Keep::kOthers, Look::kAtItem>},
    FilterEntry{"rejectattr", choose<Keep::kOthers, Look::kAtAttribute>},
    FilterEntry{"select", choose<Keep::kMatching, Look::kAtItem>},
    FilterEntry{"selectattr", choose<Keep::kMatching, Look::kAtAttribute>},
};

}  // namespace

std::span<const FilterEntry> mapping_filters() { return kMappingFilters; }

}  // namespace lockstep::serving::jinja
