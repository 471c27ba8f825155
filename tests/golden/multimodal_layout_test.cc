// A checkpoint whose text part is one of several: its tensors begin with "model.language_model.", its config
// is in text_config, and what it sees with lies beside it. The same weights under their plain names are the
// reference.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/models/registry.h"
#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::test {
namespace {

constexpr const char* kPlain = "tests/golden/qwen3.5-moe";

std::string renamed(const std::string& name) {
  return name.starts_with("model.") ? "model.language_model." + name.substr(6) : name;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Renames every tensor and puts two behind them that no text needs.
std::string as_part(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const Json header = parse_json(file.substr(8, length)).value();
  std::string data = file.substr(8 + length);
  Json part = Json::object();
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__") part[renamed(name)] = entry;
  for (const char* name : {"model.visual.patch_embed.proj.weight", "mtp.fc.weight"}) {
    part[name] = {
        {"dtype", "F32"}, {"shape", {1, 1, 1, 1, 2}}, {"data_offsets", {data.size(), data.size() + 8}}};
    data.resize(data.size() + 8);
  }
  std::string text = to_text(part);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text + data;
}

class MultimodalLayout : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("multimodal_" + std::to_string(reinterpret_cast<uintptr_t>(this)));
    std::filesystem::create_directories(folder_);
    Json config = {{"model_type", "qwen3_5_moe"}, {"vision_config", {{"depth", 27}}}};
    config["text_config"] = read_json_file(std::string(kPlain) + "/config.json");
    config["text_config"]["model_type"] = "qwen3_5_moe_text";
    write_file(folder_ / "config.json", to_text(config));
    const auto plain = read_file(repository(kPlain) + "/model.safetensors");
    ASSERT_TRUE(plain.ok());
    write_file(folder_ / "model.safetensors", as_part(*plain));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(MultimodalLayout, GivesTheSameBits) {
  runtime::Request request = greedy({144, 79, 212, 138, 121}, 8);
  request.ignore_eos = true;
  request.prompt_top_logits = 4;
  const planning::ParallelFlags two = flags(2, 1, 2, "in_process", 1);
  const auto plain = start({.model_directory = repository(kPlain), .parallel = two});
  const auto part = start({.model_directory = folder_.string(), .parallel = two});
  const auto want = run_all(*plain, {request}), got = run_all(*part, {request});
  ASSERT_EQ(got[0].error, "");
  EXPECT_EQ(got[0].ids, want[0].ids);
  EXPECT_EQ(got[0].scores->last_logits, want[0].scores->last_logits);
}

TEST_F(MultimodalLayout, SaysWhatIsLeftAsideAndFindsTheStopId) {
  const auto info = models::describe(folder_);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->eos_token_ids, std::vector<int32_t>{2});
  const auto checkpoint = Checkpoint::open(folder_);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto left_aside = [&](const Checkpoint& file) {
    std::vector<std::string> lines;
    models::WeightSource source(file);
    source.purpose = models::WeightSource::Purpose::kInspect;
    source.left_aside = &lines;
    const auto loaded = info->description->load(source, {});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return lines;
  };
  EXPECT_EQ(left_aside(*checkpoint),
            (std::vector<std::string>{"1 tensors of the file are left aside: drafting",
                                      "1 tensors of the file are left aside: vision"}));
  const auto plain = Checkpoint::open(repository(kPlain));
  EXPECT_TRUE(left_aside(*plain).empty());
}

}  // namespace
}  // namespace lockstep::test
