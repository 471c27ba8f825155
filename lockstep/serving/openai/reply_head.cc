#include "lockstep/serving/openai/reply_head.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace lockstep::serving::openai {

void Usage::add(int prompt_idx, const ChoiceEnd& end) {
  completion_tokens += end.num_tokens;
  reasoning_tokens += end.num_reasoning_tokens;
  const auto idx = static_cast<size_t>(prompt_idx);
  if (cached_tokens.size() <= idx) cached_tokens.resize(idx + 1, -1);
  int64_t& cached = cached_tokens[idx];
  cached = cached < 0 ? end.num_cached_tokens : std::min<int64_t>(cached, end.num_cached_tokens);
}

int64_t Usage::all_cached() const {
  return std::accumulate(cached_tokens.begin(), cached_tokens.end(), int64_t{0},
                         [](int64_t sum, int64_t tokens) { return sum + std::max<int64_t>(tokens, 0); });
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.all_cached()}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json head_json(const ReplyHead& head, std::string_view object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint}};
}

void append_json_string(std::string_view text, std::string& out) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string random_id(std::string_view prefix) {
  static constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::random_device random;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kLetters[letter(random)];
  return id;
}

std::string sse_event(std::string_view json) { return fmt::format("data: {}\n\n", json); }

}  // namespace lockstep::serving::openai
