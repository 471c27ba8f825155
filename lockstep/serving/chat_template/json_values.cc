#include "lockstep/serving/chat_template/json_values.h"

#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving::jinja {
namespace {

Value text_of(Heap& heap, const std::string& text) {
  return heap.text(is_valid_utf8(text) ? text : replace_invalid(text));
}

Value convert(Heap& heap, const Json& document, int depth) {
  heap.step();
  if (depth > kMaxValueDepth) heap.fail("the variables are nested deeper than {} levels", kMaxValueDepth);
  switch (document.type()) {
    case Json::value_t::boolean:
      return Value::boolean(document.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(document.get<int64_t>());
    case Json::value_t::number_unsigned:
      return Value::integer(document.get<uint64_t>());
    case Json::value_t::number_float:
      return Value::real(document.get<double>());
    case Json::value_t::string:
      return text_of(heap, document.get_ref<const std::string&>());
    case Json::value_t::array: {
      Values items;
      items.reserve(document.size());
      for (const Json& item : document) items.push_back(convert(heap, item, depth + 1));
      return heap.list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<Dict::Entry> entries;
      entries.reserve(document.size());
      for (const auto& [name, item] : document.get_ref<const Json::object_t&>())
        entries.emplace_back(text_of(heap, name), convert(heap, item, depth + 1));
      return heap.dict(std::move(entries));
    }
    case Json::value_t::null:
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return Value::none();
}

}  // namespace

Value from_json(Heap& heap, const Json& document) { return convert(heap, document, 1); }

}  // namespace lockstep::serving::jinja
