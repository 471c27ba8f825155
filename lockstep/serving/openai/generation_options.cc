#include "lockstep/serving/openai/generation_options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "lockstep/base/hash.h"
#include "lockstep/serving/openai/output_forms.h"

namespace lockstep::serving::openai {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int>::max();

void read_logit_bias(Fields& fields, int vocab, std::vector<std::pair<int32_t, float>>& out) {
  const Json* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  out.clear();
  for (const auto& [key, value] : biases->items()) {
    const std::string field = "logit_bias." + key;
    int32_t id = -1;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab)
      return fields.refuse("logit_bias",
                           fmt::format("has the key \"{}\", which is no token id below {}", key, vocab));
    if (!value.is_number())
      return fields.refuse(field, fmt::format("must be a number, not {}", kind_of(value)));
    const double bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100))
      return fields.refuse(field, fmt::format("must be between -100 and 100, but is {:g}", bias));
    out.emplace_back(id, static_cast<float>(bias));
  }
}

void read_sampling(Fields& fields, int vocab, runtime::SamplingParams& sampling) {
  const auto number = [&](std::string_view key, double low, double high, float& out) {
    if (const auto value = fields.number(key, low, high)) out = static_cast<float>(*value);
  };
  number("temperature", 0, 2, sampling.temperature);
  number("top_p", 0, 1, sampling.top_p);
  number("min_p", 0, 1, sampling.min_p);
  number("presence_penalty", -2, 2, sampling.presence_penalty);
  number("frequency_penalty", -2, 2, sampling.frequency_penalty);
  number("repetition_penalty", 0.01, 100, sampling.repetition_penalty);
  if (const auto top_k = fields.integer("top_k", -1, kMaxInt))
    sampling.top_k = *top_k < 0 ? 0 : static_cast<int>(*top_k);
  // The smallest set of any probability is the most likely token.
  if (sampling.top_p == 0) sampling.top_p = 1, sampling.top_k = 1;
  if (const Json* seed = fields.find("seed")) {
    if (seed->is_number_unsigned()) {
      sampling.seed = seed->get<uint64_t>();
    } else if (const auto value = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                                 std::numeric_limits<int64_t>::max())) {
      sampling.seed = static_cast<uint64_t>(*value);
    }
  }
  read_logit_bias(fields, vocab, sampling.logit_bias);
}

void read_stop(Fields& fields, std::vector<std::string>& out) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const auto add = [&](const std::string& field, const Json& value) {
    if (!value.is_string())
      return fields.refuse(field, fmt::format("must be a string, not {}", kind_of(value)));
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty()) return fields.refuse(field, "must not be empty: it would end every answer at once");
    if (text.size() > kMaxStopBytes)
      return fields.refuse(
          field, fmt::format("has {} bytes, more than the limit of {}", text.size(), kMaxStopBytes));
    out.push_back(text);
  };
  if (stop->is_string()) return add("stop", *stop);
  if (!stop->is_array())
    return fields.refuse("stop", fmt::format("must be a string or an array, not {}", kind_of(*stop)));
  if (stop->size() > kMaxStopStrings)
    return fields.refuse(
        "stop", fmt::format("has {} strings, more than the limit of {}", stop->size(), kMaxStopStrings));
  for (size_t i = 0; i < stop->size(); ++i) add(fmt::format("stop[{}]", i), (*stop)[i]);
}

void read_stop_token_ids(Fields& fields, int vocab, std::vector<int32_t>& out) {
  const Json* ids = fields.array("stop_token_ids");
  if (ids == nullptr) return;
  if (ids->size() > kMaxStopTokenIds)
    return fields.refuse("stop_token_ids",
                         fmt::format("has {} ids, more than the limit of {}", ids->size(), kMaxStopTokenIds));
  for (size_t i = 0; i < ids->size(); ++i) {
    const Json& id = (*ids)[i];
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab)
      return fields.refuse(fmt::format("stop_token_ids[{}]", i),
                           fmt::format("must be a token id below {}", vocab));
    out.push_back(id.get<int32_t>());
  }
}

void read_streaming(Fields& fields, GenerationOptions& options) {
  options.stream = fields.flag("stream").value_or(false);
  const Json* stream_options = fields.object("stream_options");
  if (stream_options == nullptr) return;
  if (!options.stream) return fields.refuse("stream_options", "may be given only with \"stream\": true");
  Fields inner(*stream_options, "stream_options");
  options.include_usage = inner.flag("include_usage").value_or(false);
  if (const Status status = inner.status(); !status.ok()) fields.complain(status.error());
}

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// OpenAI's limits. Nobody reads it here, but responses keep it.
void check_metadata(Fields& fields) {
  constexpr size_t kMaxPairs = 16, kMaxKey = 64, kMaxValue = 512;
  const Json* metadata = fields.object("metadata");
  if (metadata == nullptr) return;
  if (metadata->size() > kMaxPairs)
    return fields.refuse("metadata",
                         fmt::format("has {} pairs, more than the limit of {}", metadata->size(), kMaxPairs));
  for (const auto& [key, value] : metadata->items()) {
    if (num_characters(key) > kMaxKey)
      return fields.refuse("metadata", fmt::format("has a key of {} characters, more than the limit of {}",
                                                   num_characters(key), kMaxKey));
    if (!value.is_string() || num_characters(value.get_ref<const std::string&>()) > kMaxValue)
      return fields.refuse("metadata." + key,
                           fmt::format("must be a string of at most {} characters", kMaxValue));
  }
}

}  // namespace

std::string read_name(Fields& fields, std::string_view key) {
  std::string name = fields.text(key).value_or("");
  if (name.size() <= kMaxNameBytes) return name;
  fields.refuse(key, fmt::format("has {} bytes, more than the limit of {}", name.size(), kMaxNameBytes));
  return {};
}

GenerationOptions read_generation_options(Fields& fields, const runtime::ModelInfo& model) {
  GenerationOptions options{.sampling = model.default_sampling};
  read_sampling(fields, model.vocab, options.sampling);
  read_stop(fields, options.stop);
  read_stop_token_ids(fields, model.vocab, options.stop_token_ids);
  read_streaming(fields, options);
  if (const auto n = fields.integer("n", 1, kMaxChoices)) options.num_choices = static_cast<int>(*n);
  if (const auto tokens = fields.integer("min_tokens", 0, kMaxInt))
    options.min_tokens = static_cast<int>(*tokens);
  options.ignore_eos = fields.flag("ignore_eos").value_or(false);
  options.form = read_output_form(fields);
  if (const auto priority = fields.integer("priority", -kMaxPriority, kMaxPriority))
    options.priority = static_cast<int>(*priority);
  options.user = read_name(fields, "user");
  options.cache_salt = read_name(fields, "cache_salt");
  check_metadata(fields);
  return options;
}

std::optional<uint64_t> seed_of_choice(std::optional<uint64_t> seed, int choice_idx) {
  if (!seed || choice_idx == 0) return seed;
  return mix64(*seed ^ mix64(static_cast<uint64_t>(choice_idx)));
}

void refuse_unsupported(Fields& fields) {
  if (fields.has("audio")) fields.refuse("audio", "is not supported: this server answers in text only");
  if (fields.has("web_search_options"))
    fields.refuse("web_search_options", "is not supported: this server searches nothing");
  if (const Json* modalities = fields.array("modalities"))
    if (*modalities != Json::array({"text"}))
      fields.refuse("modalities", "must be [\"text\"]: this server answers in text only");
}

}  // namespace lockstep::serving::openai
