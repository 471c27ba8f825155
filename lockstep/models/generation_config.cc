#include "lockstep/models/generation_config.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/file.h"

namespace lockstep::models {

Result<Json> read_json_object(const std::filesystem::path& path) {
  const auto text = read_file(path, size_t{16} << 20);
  if (!text) return text.error();
  auto json = parse_json(*text);
  if (!json) return invalid_argument(path.string(), "{}: {}", path.string(), json.error().message);
  if (!json->is_object()) return invalid_argument(path.string(), "{} is not a JSON object", path.string());
  return json;
}

std::vector<int32_t> read_token_ids(const Json& config, const char* key, ConfigReader& reader) {
  std::vector<int32_t> ids;
  const auto at = config.find(key);
  if (at == config.end() || at->is_null()) return ids;
  const auto add = [&](const Json& id) {
    const bool fits = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < INT32_MAX;
    if (!fits) reader.refuse(key, fmt::format("holds {}, which is no token id", to_text(id)));
    if (fits) ids.push_back(id.get<int32_t>());
  };
  if (at->is_array()) {
    for (const Json& id : *at) add(id);
  } else {
    add(*at);
  }
  return ids;
}

namespace {

// Settings of generation that change what is drawn and are not applied, with the value at which they do
// nothing.
constexpr std::pair<const char*, double> kNotApplied[] = {{"num_beams", 1},
                                                          {"num_beam_groups", 1},
                                                          {"no_repeat_ngram_size", 0},
                                                          {"typical_p", 1},
                                                          {"epsilon_cutoff", 0},
                                                          {"eta_cutoff", 0},
                                                          {"penalty_alpha", 0},
                                                          {"diversity_penalty", 0},
                                                          {"length_penalty", 1},
                                                          {"encoder_repetition_penalty", 1}};

void note_what_is_not_applied(const Json& json, const std::string& file, CheckpointInfo& info) {
  for (const auto& [key, neutral] : kNotApplied)
    if (const auto at = json.find(key); at != json.end() && at->is_number() && at->get<double>() != neutral)
      info.notes.push_back(fmt::format("{}: {} {} is not applied", file, key, to_text(*at)));
}

}  // namespace

// What generation_config.json adds: stop ids, and how the model likes to be sampled. Values are checked also
// where they are not used.
Status read_generation(const std::filesystem::path& path, CheckpointInfo& info) {
  const auto json = read_json_object(path);
  if (!json) return json.error();
  ConfigReader reader(*json);
  if (auto ids = read_token_ids(*json, "eos_token_id", reader); !ids.empty())
    info.eos_token_ids = std::move(ids);
  SamplingDefaults sampling;
  sampling.temperature = static_cast<float>(reader.number_or("temperature", 1.0, 0, 100));
  sampling.top_p = static_cast<float>(reader.number_or("top_p", 1.0, 0, 1));
  sampling.top_k =
      static_cast<int>(std::max<int64_t>(0, reader.integer_or("top_k", 0, -1, 1 << 24)));  // -1: all
  sampling.min_p = static_cast<float>(reader.number_or("min_p", 0.0, 0, 1));
  sampling.repetition_penalty = static_cast<float>(reader.number_or("repetition_penalty", 1.0, 0.01, 100));
  if (reader.flag_or("do_sample", false)) {
    info.sampling = sampling;
  } else {
    info.sampling.repetition_penalty = sampling.repetition_penalty;
    const std::pair<const char*, bool> given[] = {{"temperature", sampling.temperature != 1},
                                                  {"top_p", sampling.top_p != 1},
                                                  {"min_p", sampling.min_p != 0}};
    for (const auto& [key, matters] : given)
      if (matters)
        info.notes.push_back(fmt::format("{}: {} is not applied, because do_sample is not true: greedy",
                                         path.filename().string(), key));
  }
  note_what_is_not_applied(*json, path.filename().string(), info);
  if (const Status status = reader.status(); !status)
    return invalid_argument(path.string(), "{}: {}", path.string(),
                            status.error().message.substr(std::string("config.json: ").size()));
  return Done{};
}

void note_stops_outside(CheckpointInfo& info) {
  const int vocab = info.description->shape().vocab;
  for (const int32_t id : info.eos_token_ids)
    if (id >= vocab)
      info.notes.push_back(
          fmt::format("eos_token_id {} is outside the vocabulary of {} and never ends a reply", id, vocab));
}

}  // namespace lockstep::models
