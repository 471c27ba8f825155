#include "lockstep/base/json.h"

#include <set>
#include <vector>

namespace lockstep {
namespace {

// Counts depth and looks for duplicate keys; refuses by returning false, which ends the parse.
class LimitedSax : public nlohmann::detail::json_sax_dom_parser<Json> {
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;

 public:
  LimitedSax(Json& document, const JsonLimits& limits) : Base(document, false), limits_(limits) {}

  bool start_object(std::size_t elements) {
    keys_.emplace_back();
    return enter() && Base::start_object(elements);
  }
  bool end_object() {
    keys_.pop_back();
    --depth_;
    return Base::end_object();
  }
  bool start_array(std::size_t elements) { return enter() && Base::start_array(elements); }
  bool end_array() {
    --depth_;
    return Base::end_array();
  }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second) {
      refusal = fmt::format("the key \"{}\" stands twice in one object", name);
      return false;
    }
    return Base::key(name);
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string& /*last_token*/, const Exception& why) {
    refusal = fmt::format("not JSON at byte {}: {}", position, why.what());
    return false;
  }

  std::string refusal;

 private:
  bool enter() {
    if (++depth_ <= limits_.max_depth) return true;
    refusal = fmt::format("nested deeper than {} levels", limits_.max_depth);
    return false;
  }
  const JsonLimits& limits_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return invalid_argument("", "JSON of {} bytes is larger than the limit of {} bytes", text.size(),
                            limits.max_bytes);
  Json root;
  LimitedSax sax(root, limits);
  if (!Json::sax_parse(text, &sax)) return invalid_argument("", "{}", sax.refusal);
  return root;
}

std::string to_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace lockstep
