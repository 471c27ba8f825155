#include "lockstep/models/quantization/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace lockstep::models {
namespace {

constexpr size_t kMaxPatternBytes = 4096;
constexpr uint32_t kMatchLimit = 100000;  // steps; a sane pattern over a module's name takes some hundred

template <auto free_function>
struct FreeWith {
  template <class T>
  void operator()(T* pointer) const {
    free_function(pointer);
  }
};

// The name itself, a parent of it, or its last parts: "lm_head", "model.layers.0", "mlp.gate".
bool names_module(std::string_view pattern, std::string_view module) {
  const auto is_at = [&](size_t begin) {
    const size_t end = begin + pattern.size();
    return module.substr(begin, pattern.size()) == pattern && (end == module.size() || module[end] == '.');
  };
  if (pattern.empty()) return false;
  if (module.size() < pattern.size()) return false;
  if (is_at(0)) return true;
  for (size_t dot = module.find('.'); dot != module.npos; dot = module.find('.', dot + 1))
    if (dot + 1 + pattern.size() <= module.size() && is_at(dot + 1)) return true;
  return false;
}

std::string regex_of_wildcards(std::string_view text) {
  std::string regex;
  for (const char c : text) {
    if (c == '*') {
      regex += ".*";
    } else if (c == '?') {
      regex += '.';
    } else {
      if (std::string_view("\\^$.|+()[]{}").find(c) != std::string_view::npos) regex += '\\';
      regex += c;
    }
  }
  return regex + "$";
}

}  // namespace

struct NamePattern::Compiled {
  std::unique_ptr<pcre2_code, FreeWith<pcre2_code_free>> code;
};

Result<NamePattern> NamePattern::parse(const std::string& text, Dialect dialect) {
  if (text.size() > kMaxPatternBytes)
    return invalid_argument("quantization_config", "a pattern of {} bytes is longer than {}", text.size(),
                            kMaxPatternBytes);
  const bool has_wildcards = text.find_first_of("*?") != text.npos;
  if (dialect == Dialect::kModule || (dialect == Dialect::kWildcards && !has_wildcards))
    return NamePattern(text, nullptr);
  const std::string regex = dialect == Dialect::kRegex ? text : regex_of_wildcards(text);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                                     PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  if (compiled->code == nullptr) {
    PCRE2_UCHAR why[256] = {};
    pcre2_get_error_message(error, why, sizeof why);
    return invalid_argument("quantization_config", "\"{}\" is not a pattern: {} at byte {}", text,
                            reinterpret_cast<const char*>(why), offset);
  }
  return NamePattern(text, std::move(compiled));
}

bool NamePattern::matches(const std::string& module) const {
  if (compiled_ == nullptr) return names_module(text_, module);
  const std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free>> context(
      pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free>> data(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  if (context == nullptr || data == nullptr) return false;
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), 1024);
  return pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(module.data()), module.size(), 0, 0,
                     data.get(), context.get()) >= 0;
}

}  // namespace lockstep::models
