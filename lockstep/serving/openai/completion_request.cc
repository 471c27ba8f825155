#include "lockstep/serving/openai/completion_request.h"

#include <limits>
#include <utility>

namespace lockstep::serving::openai {
namespace {

constexpr int kMaxLogprobs = 5;  // OpenAI's limit

Result<std::vector<int32_t>> read_ids(const Json& array, const std::string& field, int vocab) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const Json& id = array[i];
    const std::string place = fmt::format("{}[{}]", field, i);
    if (!id.is_number_integer())
      return invalid_argument(place, "'{}' must be a token id, not {}", place, kind_of(id));
    // Ids above INT64_MAX come back negative, and are no ids either.
    if (const auto value = id.get<int64_t>(); value < 0 || value >= vocab)
      return invalid_argument(place, "'{}' is {}, which is no token id below {}", place, to_text(id), vocab);
    ids.push_back(id.get<int32_t>());
  }
  if (ids.empty()) return invalid_argument(field, "'{}' must hold at least one token id", field);
  return ids;
}

void read_logprobs(Fields& fields, CompletionRequest& request) {
  const auto top = fields.integer("logprobs", 0, kMaxLogprobs);
  if (!top) return;
  request.options.num_top_logprobs = static_cast<int>(*top);
  if (request.echo) request.options.prompt_logprobs = static_cast<int>(*top);
}

void read_best_of(Fields& fields, int num_choices) {
  const auto best_of = fields.integer("best_of", 1, kMaxChoices);
  if (best_of && *best_of != num_choices)
    fields.refuse(
        "best_of",
        fmt::format("is {}, and n is {}: choosing among more answers is not supported; give n alone",
                    *best_of, num_choices));
}

}  // namespace

Result<std::vector<Prompt>> read_prompts(const Json& value, std::string_view field, int vocab) {
  const std::string name(field);
  if (value.is_string()) return std::vector<Prompt>{value.get<std::string>()};
  if (!value.is_array())
    return invalid_argument(
        name, "'{}' must be a string, an array of strings, of token ids or of arrays of these, not {}", name,
        kind_of(value));
  if (value.empty()) return invalid_argument(name, "'{}' must not be empty", name);
  if (value[0].is_number()) {
    auto ids = read_ids(value, name, vocab);
    if (!ids) return ids.error();
    return std::vector<Prompt>{std::move(*ids)};
  }
  if (value.size() > kMaxPrompts)
    return invalid_argument(name, "'{}' holds {} prompts, more than the limit of {}", name, value.size(),
                            kMaxPrompts);
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", name, i);
    if (value[i].type() != value[0].type() || !(value[i].is_string() || value[i].is_array()))
      return invalid_argument(place, "'{}' is {}: the prompts must be all strings or all arrays of token ids",
                              place, kind_of(value[i]));
    if (value[i].is_string()) {
      prompts.emplace_back(value[i].get<std::string>());
      continue;
    }
    auto ids = read_ids(value[i], place, vocab);
    if (!ids) return ids.error();
    prompts.emplace_back(std::move(*ids));
  }
  return prompts;
}

Result<CompletionRequest> read_completion_request(const Json& body, const runtime::ModelInfo& model) {
  CompletionRequest request;
  Fields fields(body);
  request.model = fields.text("model");
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) {
    fields.refuse("prompt", "is missing");
  } else if (auto prompts = read_prompts(*prompt, "prompt", model.vocab)) {
    request.prompts = std::move(*prompts);
  } else {
    fields.complain(prompts.error());
  }
  request.options = read_generation_options(fields, model);
  request.options.max_tokens = static_cast<int>(
      fields.integer("max_tokens", 0, std::numeric_limits<int>::max()).value_or(kDefaultMaxTokens));
  request.echo = fields.flag("echo").value_or(false);
  read_logprobs(fields, request);
  read_best_of(fields, request.options.num_choices);
  if (const size_t all = request.prompts.size() * static_cast<size_t>(request.options.num_choices);
      all > kMaxAllChoices)
    fields.refuse("n", fmt::format("asks for {} answers with these {} prompts, more than the limit of {}",
                                   all, request.prompts.size(), kMaxAllChoices));
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty())
    fields.refuse("suffix", "is not supported: this server completes at the end only");
  refuse_unsupported(fields);
  if (!fields.ok()) return fields.status().error();
  return request;
}

}  // namespace lockstep::serving::openai
