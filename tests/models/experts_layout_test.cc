// Experts one by one and all together in one tensor are the same weights.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/models/blocks/moe_ffn.h"
#include "tests/source_dir.h"

namespace lockstep::models {
namespace {

constexpr int kExperts = 8, kWidth = 32, kHidden = 64;  // of the checkpoint below
const std::string kPrefix = "model.layers.1.mlp.";

Checkpoint one_by_one() {
  return Checkpoint::open(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/qwen3-moe").value();
}

std::string bytes_of(const Checkpoint& checkpoint, const std::string& name) {
  const TensorView view = checkpoint.find(name).value();
  return {static_cast<const char*>(view.data),
          static_cast<size_t>(view.num_elements()) * size_of(view.dtype)};
}

// The same layer with its experts in two tensors: for each expert the rows of gate, then those of up.
class Together : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 ("experts_together_" + std::to_string(reinterpret_cast<uintptr_t>(this)));
    std::filesystem::create_directories(directory_);
    const Checkpoint source = one_by_one();
    std::string gate_up, down;
    for (int expert = 0; expert < kExperts; ++expert) {
      const std::string prefix = fmt::format("{}experts.{}.", kPrefix, expert);
      gate_up += bytes_of(source, prefix + "gate_proj.weight") + bytes_of(source, prefix + "up_proj.weight");
      down += bytes_of(source, prefix + "down_proj.weight");
    }
    const std::string router = bytes_of(source, kPrefix + "gate.weight");
    size_t at = 0;
    const auto entry = [&](const char* name, const char* shape, const std::string& bytes) {
      const size_t begin = at;
      at += bytes.size();
      return fmt::format(R"("{}{}":{{"dtype":"BF16","shape":{},"data_offsets":[{},{}]}})", kPrefix, name,
                         shape, begin, at);
    };
    std::string header = "{" + entry("experts.gate_up_proj", "[8,64,64]", gate_up);
    header += "," + entry("experts.down_proj", "[8,64,32]", down);
    header += "," + entry("gate.weight", "[8,64]", router) + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    std::ofstream file(directory_ / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header << gate_up << down << router;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

void expect_same(const std::vector<WeightView>& a, const std::vector<WeightView>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t expert = 0; expert < a.size(); ++expert) {
    ASSERT_EQ(a[expert].plain.shape, b[expert].plain.shape);
    for (int64_t row = 0; row < a[expert].rows(); ++row)
      ASSERT_EQ(std::memcmp(a[expert].plain.as<BF16>() + row * a[expert].plain.stride[0],
                            b[expert].plain.as<BF16>() + row * b[expert].plain.stride[0],
                            static_cast<size_t>(a[expert].cols()) * sizeof(BF16)),
                0)
          << "expert " << expert << " row " << row;
  }
}

TEST_F(Together, GivesEveryShardTheSameRows) {
  const Checkpoint separate = one_by_one();
  const auto together = Checkpoint::open(directory_);
  ASSERT_TRUE(together.ok()) << together.error().message;
  const MoeConfig config{.hidden = kHidden, .num_experts = kExperts, .top_k = 3, .expert_width = kWidth};
  for (const int parts : {1, 3, 8}) {
    for (int index = 0; index < parts; ++index) {
      for (const Shards& shards :
           {Shards{.expert_parallel = {index, parts}}, Shards{.expert_tp = {index, parts}}}) {
        WeightReader from_separate(separate), from_together(*together);
        const MoeWeights a = read_moe(from_separate, kPrefix, config, shards);
        const MoeWeights b = read_moe(from_together, kPrefix, config, shards);
        ASSERT_TRUE(from_separate.status().ok()) << from_separate.status().error().message;
        ASSERT_TRUE(from_together.status().ok()) << from_together.status().error().message;
        EXPECT_EQ(a.first_expert, b.first_expert);
        expect_same(a.gate, b.gate);
        expect_same(a.up, b.up);
        expect_same(a.down, b.down);
      }
    }
  }
}

TEST_F(Together, OfAnotherShapeIsRefused) {
  const auto together = Checkpoint::open(directory_);
  WeightReader reader(*together);
  read_moe(reader, kPrefix, {.hidden = kHidden, .num_experts = kExperts, .top_k = 3, .expert_width = 48}, {});
  ASSERT_FALSE(reader.status().ok());
  EXPECT_NE(reader.status().error().message.find("experts.gate_up_proj is [8, 64, 64], expected [8, 96, 64]"),
            std::string::npos)
      << reader.status().error().message;
}

}  // namespace
}  // namespace lockstep::models
