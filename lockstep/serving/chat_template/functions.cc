#include "lockstep/serving/chat_template/functions.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "lockstep/serving/chat_template/access.h"
#include "lockstep/serving/chat_template/printing.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

// Jinja's sandbox refuses longer ranges.
constexpr Integer kMaxRange = 100000;

Value range(Heap& heap, const CallArguments& arguments) {
  const Signature signature(heap, "range", arguments, {"", "", ""}, 1);
  const bool has_start = signature.has(1);
  Range range;
  range.start = has_start ? signature.integer(0) : 0;
  range.stop = signature.integer(has_start ? 1 : 0);
  range.step = signature.integer_or(2, 1);
  if (range.step == 0) heap.fail("range() arg 3 must not be zero");
  constexpr Integer kFar = Integer{1} << 62;
  const auto is_far = [](Integer value) { return value > kFar || value < -kFar; };
  if (is_far(range.start) || is_far(range.stop) || is_far(range.step))
    heap.fail("range() is given a number above 2**62");
  if (range.size() > kMaxRange)
    heap.fail("a range of more than {} items is too big", integer_text(kMaxRange));
  return heap.range(range);
}

// The entries of dict(mapping or pairs, **keywords).
std::vector<Dict::Entry> dict_entries(Heap& heap, std::string_view function, const CallArguments& arguments) {
  if (arguments.positional.size() > 1)
    heap.fail("{} expected at most 1 argument, got {}", function, arguments.positional.size());
  std::vector<Dict::Entry> entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (source.is(Kind::kDict)) {
      heap.step(source.dict().size());
      entries = source.dict().entries();
    } else {
      for (const Value& pair : iterate(heap, source)) {
        const SharedValues parts = iterate(heap, pair);
        if (parts.size() != 2) heap.fail("{} needs pairs, but an item has {} parts", function, parts.size());
        entries.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords) entries.emplace_back(heap.text(name), value);
  return entries;
}

Value dict(Heap& heap, const CallArguments& arguments) {
  return heap.dict(dict_entries(heap, "dict", arguments));
}

Value make_namespace(Heap& heap, const CallArguments& arguments) {
  const Value contents = heap.dict(dict_entries(heap, "namespace", arguments));
  std::vector<std::pair<std::string, Value>> attributes;
  for (const auto& [key, value] : contents.dict().entries()) {
    if (!key.is(Kind::kText)) heap.fail("namespace() needs names that are strings, not {}", type_name(key));
    attributes.emplace_back(key.view(), value);
  }
  return heap.new_namespace(std::move(attributes));
}

Value raise_exception(Heap& heap, const CallArguments& arguments) {
  const Signature signature(heap, "raise_exception", arguments, {"message"}, 1);
  throw Failure{std::string(to_text(heap, signature.value(0)).view()), heap.line, Failure::Cause::kRaised};
}

// Python fills in what the C library would print for a time without a zone.
std::string without_zone(std::string_view format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const char code = format[++i];
    if (code == 'z' || code == 'Z') continue;
    out += code == 'f' ? std::string("000000") : std::string{'%', code};
  }
  return out;
}

Value strftime_now(Heap& heap, const CallArguments& arguments) {
  const Signature signature(heap, "strftime_now", arguments, {"format"}, 1);
  if (signature.text(0).size() > 1000)
    heap.fail("the format given to strftime_now is longer than 1000 bytes");
  if (signature.text(0).find('\0') != std::string_view::npos)
    heap.fail("embedded null character in strftime_now");
  const std::string format =
      without_zone(signature.text(0)) + " ";  // never empty: 0 means too small a buffer
  std::tm local{};
  const std::time_t now = heap.limits().now;
  if (localtime_r(&now, &local) == nullptr) heap.fail("the time {} has no date", now);
  std::string out(format.size() * 128 + 128, '\0');
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const size_t size = std::strftime(out.data(), out.size(), format.c_str(), &local);
#pragma GCC diagnostic pop
  if (size == 0) heap.fail("the format given to strftime_now prints too much");
  out.resize(size - 1);
  return heap.text(is_valid_utf8(out) ? std::move(out) : replace_invalid(out));
}

constexpr std::array kFunctions = {
    FunctionEntry{"cycler", nullptr},
    FunctionEntry{"dict", dict},
    FunctionEntry{"joiner", nullptr},
    FunctionEntry{"lipsum", nullptr},
    FunctionEntry{"namespace", make_namespace},
    FunctionEntry{"raise_exception", raise_exception},
    FunctionEntry{"range", range},
    FunctionEntry{"strftime_now", strftime_now},
};

}  // namespace

const FunctionEntry* find_function(std::string_view name) {
  const auto found = std::find_if(kFunctions.begin(), kFunctions.end(),
                                  [&](const FunctionEntry& entry) { return entry.name == name; });
  return found != kFunctions.end() ? &*found : nullptr;
}

}  // namespace lockstep::serving::jinja
