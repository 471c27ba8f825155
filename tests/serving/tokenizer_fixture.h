#pragma once
// Made-up tokenizers for tests: every byte is an entry, in the order of the bytes, then the result of each
// merge.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/byte_alphabet.h"
#include "lockstep/serving/tokenizer/tokenizer.h"
#include "tests/source_dir.h"

namespace lockstep::serving {

inline std::string spelled(std::string_view bytes) {
  std::string out;
  tokenizing::spell(bytes, out);
  return out;
}

inline Json byte_level_step() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}

inline Json split_step(std::string_view pattern, std::string_view behavior = "Isolated") {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}};
}

inline Json steps(std::vector<Json> splits) {
  splits.push_back(byte_level_step());
  return {{"type", "Sequence"}, {"pretokenizers", splits}};
}

inline Json merge_list(const std::vector<std::pair<std::string, std::string>>& merges) { return merges; }

inline Json added_token(int id, std::string_view content, const Json& changes = Json::object()) {
  Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  token.update(changes);
  return token;
}

// What differs from a plain tokenizer; the names are those of tools/record_tokenizer_expectations.py.
inline Json made_up(const Json& config = Json::object()) {
  const Json none = Json::array();
  Json vocab = Json::object();
  const Json missing = config.value("missing", none);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string symbol = spelled(std::string(1, static_cast<char>(byte)));
    if (std::find(missing.begin(), missing.end(), Json(symbol)) == missing.end())
      vocab[symbol] = vocab.size();
  }
  const auto append = [&](const std::string& entry) {
    if (!vocab.contains(entry)) vocab[entry] = vocab.size();
  };
  const Json merges = config.value("merges", none);
  for (const Json& merge : merges) append(merge[0].get<std::string>() + merge[1].get<std::string>());
  for (const Json& entry : config.value("extra", none)) append(entry.get<std::string>());
  Json added = config.value("added_tokens", none);
  for (size_t i = 0; i < added.size(); ++i)
    if (!added[i].contains("id")) added[i]["id"] = vocab.size() + i;
  const auto field = [&](const char* name, Json fallback) {
    return config.contains(name) ? config[name] : std::move(fallback);
  };
  return {{"added_tokens", added},
          {"normalizer", field("normalizer", nullptr)},
          {"pre_tokenizer", field("pre_tokenizer", byte_level_step())},
          {"post_processor", field("post_processor", nullptr)},
          {"decoder", byte_level_step()},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", field("unk_token", nullptr)},
            {"fuse_unk", field("fuse_unk", false)},
            {"byte_fallback", false},
            {"ignore_merges", field("ignore_merges", false)},
            {"vocab", vocab},
            {"merges", merges}}}};
}

inline Tokenizer load_made_up(const Json& config = Json::object()) {
  auto tokenizer = Tokenizer::from_json(to_text(made_up(config)));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

// The lines of a file of recorded expectations.
inline std::vector<Json> read_json_lines(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::ifstream in(path);
  EXPECT_TRUE(in.is_open()) << path;
  for (std::string line; std::getline(in, line);) {
    auto parsed = parse_json(line);
    EXPECT_TRUE(parsed.ok()) << path << ": " << parsed.error().message;
    if (parsed) lines.push_back(std::move(*parsed));
  }
  return lines;
}

inline std::filesystem::path tokenizer_data(std::string_view name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/serving/data/tokenizer" / name;
}

}  // namespace lockstep::serving
