// Checkpoints on disk: single files, shards, and folders that lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "lockstep/tensors/safetensors.h"
#include "tests/source_dir.h"
#include "tests/tensors/safetensors_file.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string bytes_of(std::initializer_list<float> values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

std::string one_tensor(const std::string& name, std::initializer_list<float> values) {
  const std::string data = bytes_of(values);
  return safetensors(fmt::format(R"({{"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", name,
                                 values.size(), data.size()),
                     data);
}

Error error_of(const std::filesystem::path& folder) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  return checkpoint.ok() ? Error{ErrorCode::kInternal, "(accepted)", ""} : checkpoint.error();
}

// Values below were read from the file with Python's struct module.
TEST(Checkpoint, ReadsTheGoldenModel) {
  const Result<Checkpoint> opened = Checkpoint::open(LOCKSTEP_SOURCE_DIR "/tests/golden/deepseek-v3");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->names().size(), 91u);
  EXPECT_EQ(opened->total_bytes(), 414480u);

  const TensorView bias = opened->find("model.layers.1.mlp.gate.e_score_correction_bias").value();
  EXPECT_EQ(bias.num_dims, 1);
  EXPECT_EQ(bias.shape[0], 8);
  EXPECT_THAT(std::vector<float>(bias.as<float>(), bias.as<float>() + 8),
              ElementsAre(0.0205078125f, -0.01470947265625f, -0.09912109375f, -0.09912109375f, 0.10546875f,
                          0.03369140625f, -0.0546875f, 0.18359375f));

  const TensorView head = opened->find("lm_head.weight").value();
  EXPECT_EQ(head.dtype, DType::kBF16);
  EXPECT_EQ(head.rows(), 256);
  EXPECT_EQ(head.cols(), 64);
  EXPECT_EQ(head.stride[0], 64);
  const BF16* weights = head.as<BF16>();
  EXPECT_EQ(to_float(weights[0]), 0.208984375f);
  EXPECT_EQ(to_float(weights[256 * 64 - 1]), 0.00799560546875f);
  const double sum = std::accumulate(weights, weights + 256 * 64, 0.0,
                                     [](double s, BF16 w) { return s + static_cast<double>(to_float(w)); });
  EXPECT_DOUBLE_EQ(sum, 2.9582669734954834);
}

TEST(Checkpoint, NamesWhatIsNotThere) {
  TempFolder folder;
  folder.write("model.safetensors", one_tensor("w", {1, 2}));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  EXPECT_TRUE(checkpoint.has("w"));
  EXPECT_FALSE(checkpoint.has("v"));
  const Result<TensorView> missing = checkpoint.find("v");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("\"v\""));
  EXPECT_THAT(missing.error().message, HasSubstr(folder.path().string()));
}

TEST(Checkpoint, FoldersWithoutWeights) {
  TempFolder folder;
  EXPECT_EQ(error_of(folder.path()).code, ErrorCode::kNotFound);
  EXPECT_THAT(error_of(folder.path()).message,
              HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  EXPECT_EQ(error_of(folder.path() / "nowhere").code, ErrorCode::kNotFound);
}

TEST(Checkpoint, FilesThatAreNoSafetensors) {
  TempFolder folder;
  folder.write("model.safetensors", "");
  EXPECT_THAT(error_of(folder.path()).message, HasSubstr("has 0 bytes"));
  EXPECT_THAT(error_of(folder.path()).message, HasSubstr((folder.path() / "model.safetensors").string()));
  folder.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_THAT(error_of(folder.path()).message, HasSubstr("is a pointer of Git LFS"));
  TempFolder special;
  std::filesystem::create_directory(special.path() / "model.safetensors");
  EXPECT_THAT(error_of(special.path()).message, HasSubstr("not a regular file"));
  TempFolder pipe;
  ASSERT_EQ(mkfifo((pipe.path() / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(error_of(pipe.path()).message, HasSubstr("not a regular file"))
      << "and nobody waits for a writer";
}

TEST(Checkpoint, UpToFourDimensionsCanBeViewed) {
  TempFolder folder;
  folder.write("model.safetensors",
               safetensors(R"({"four":{"dtype":"U8","shape":[1,2,1,2],"data_offsets":[0,4]},)"
                           R"("five":{"dtype":"U8","shape":[1,2,1,2,1],"data_offsets":[4,8]},)"
                           R"("scalar":{"dtype":"U8","shape":[],"data_offsets":[8,9]},)"
                           R"("empty":{"dtype":"U8","shape":[0,3],"data_offsets":[9,9]}})",
                           "123456789"));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  const TensorView four = checkpoint.find("four").value();
  EXPECT_EQ(four.num_dims, 4);
  EXPECT_EQ(four.stride, (std::array<int64_t, 4>{4, 2, 2, 1}));
  EXPECT_EQ(four.as<uint8_t>()[3], '4');
  const Result<TensorView> five = checkpoint.find("five");
  ASSERT_FALSE(five.ok());
  EXPECT_THAT(five.error().message, HasSubstr("has 5 dimensions; at most 4"));
  EXPECT_EQ(checkpoint.find("scalar").value().num_elements(), 1);
  EXPECT_EQ(*checkpoint.find("scalar").value().as<uint8_t>(), '9');
  EXPECT_TRUE(checkpoint.find("empty").value().empty());
  EXPECT_THAT(checkpoint.names(), ElementsAre("empty", "five", "four", "scalar"));
}

// A header of odd length is legal. The tensors behind it are copied to where their type may lie, once, for
// all threads.
TEST(Checkpoint, TensorsThatAreNotAligned) {
  TempFolder folder;
  const std::string data = bytes_of({1.5f, -2, 3});
  std::string header = R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
  while (header.size() % 4 != 1) header += ' ';
  folder.write("model.safetensors", safetensors(header, data));
  const Checkpoint checkpoint = Checkpoint::open(folder.path()).value();
  std::vector<const float*> seen(4);
  {
    std::vector<std::jthread> threads;
    for (auto& place : seen) threads.emplace_back([&] { place = checkpoint.find("w").value().as<float>(); });
  }
  for (const float* place : seen) {
    EXPECT_EQ(place, seen[0]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % alignof(float), 0u);
    EXPECT_THAT(std::vector<float>(place, place + 3), ElementsAre(1.5f, -2.0f, 3.0f));
  }
}

TEST(Checkpoint, ViewsOutliveAMove) {
  TempFolder folder;
  folder.write("model.safetensors", one_tensor("w", {4, 5}));
  Checkpoint first = Checkpoint::open(folder.path()).value();
  const TensorView view = first.find("w").value();
  const Checkpoint second = std::move(first);
  EXPECT_EQ(view.as<float>()[1], 5.0f);
  EXPECT_EQ(second.find("w").value().data, view.data);
}

class Shards : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write("model-1.safetensors",
                  safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                              R"("left over":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                              bytes_of({1, 9})));
    folder_.write("model-2.safetensors", one_tensor("b", {2}));
  }
  void index(std::string_view text) { folder_.write("model.safetensors.index.json", text); }
  std::string refusal() { return error_of(folder_.path()).message; }
  TempFolder folder_;
};

TEST_F(Shards, TheIndexSaysWhatIsThere) {
  index(R"({"metadata":{"total_size":8,"deep":[[{"weight_map":{"x":1}}],null,1.5,-1,true]},)"
        R"("weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"},"more":"text"})");
  const Checkpoint checkpoint = Checkpoint::open(folder_.path()).value();
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b"));
  EXPECT_EQ(checkpoint.total_bytes(), 8u);
  EXPECT_EQ(*checkpoint.find("a").value().as<float>(), 1.0f);
  EXPECT_EQ(*checkpoint.find("b").value().as<float>(), 2.0f);
  EXPECT_FALSE(checkpoint.has("left over"));
}

TEST_F(Shards, ASingleFileComesFirst) {
  index(R"({"weight_map":{"a":"model-1.safetensors"}})");
  folder_.write("model.safetensors", one_tensor("single", {3}));
  EXPECT_THAT(Checkpoint::open(folder_.path()).value().names(), ElementsAre("single"));
}

TEST_F(Shards, AShardMayBeALinkAsInTheHubsCache) {
  TempFolder elsewhere;
  elsewhere.write("blob", one_tensor("c", {7}));
  std::filesystem::create_symlink(elsewhere.path() / "blob", folder_.path() / "model-3.safetensors");
  index(R"({"weight_map":{"c":"model-3.safetensors"}})");
  EXPECT_EQ(*Checkpoint::open(folder_.path()).value().find("c").value().as<float>(), 7.0f);
}

TEST_F(Shards, ShardsLieInTheFolder) {
  TempFolder elsewhere;
  elsewhere.write("out.safetensors", one_tensor("a", {1}));
  const std::string outside = (elsewhere.path() / "out.safetensors").string();
  const std::string up = "../" + elsewhere.path().filename().string() + "/out.safetensors";
  for (const std::string& name : {outside, up, std::string(".."), std::string("."), std::string(),
                                  std::string("sub/x"), std::string("a\\\\b"), std::string("a\\u0000b")}) {
    index(R"({"weight_map":{"a":")" + name + R"("}})");
    EXPECT_THAT(refusal(), HasSubstr("is not the name of a file in its folder")) << name;
  }
}

TEST_F(Shards, ACopyThatDidNotFinishIsNamedAsOne) {
  const std::string whole = one_tensor("a", {1, 2, 3});
  folder_.write("model.safetensors", whole.substr(0, whole.size() - 5));
  EXPECT_THAT(refusal(), HasSubstr("copy or download that did not finish"));
  EXPECT_THAT(refusal(), HasSubstr(fmt::format("the file has {} bytes", whole.size() - 5)));
  EXPECT_THAT(refusal(), HasSubstr(fmt::format("should have at least {}", whole.size())));
  folder_.write("model.safetensors", whole.substr(0, 20));
  EXPECT_THAT(refusal(), HasSubstr("did not finish"));
  folder_.write("model.safetensors",
                "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345678\n");
  EXPECT_THAT(refusal(), HasSubstr("is a pointer of Git LFS"));
}

TEST_F(Shards, ShardsAndTensorsThatAreMissing) {
  index(R"({"weight_map":{"a":"model-9.safetensors","b":"model-1.safetensors","c":"model-7.safetensors"}})");
  EXPECT_THAT(refusal(), HasSubstr("2 of the 3 files that"));
  EXPECT_THAT(refusal(), HasSubstr("did not finish: model-7.safetensors, model-9.safetensors"));
  index(R"({"weight_map":{"a":"model-1.safetensors","b":"model-1.safetensors"}})");
  EXPECT_THAT(refusal(), HasSubstr("puts \"b\" into model-1.safetensors, which does not hold it"));
  folder_.write("model-2.safetensors", "broken");
  index(R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})");
  EXPECT_THAT(refusal(), HasSubstr("model-2.safetensors: the file has 6 bytes"));
}

TEST_F(Shards, IndexesThatAreNone) {
  const auto refused = [&](std::string_view text) {
    index(text);
    return refusal();
  };
  EXPECT_THAT(refused("{}"), HasSubstr("has no weight_map"));
  EXPECT_THAT(refused("[]"), HasSubstr("an array is not expected"));
  EXPECT_THAT(refused("7"), HasSubstr("a number is not expected"));
  EXPECT_THAT(refused("\"x\""), HasSubstr("a string is not expected"));
  EXPECT_THAT(refused(R"({"weight_map":)"), HasSubstr("not JSON"));
  EXPECT_THAT(refused(R"({"weight_map":[]})"), HasSubstr("an array is not expected"));
  EXPECT_THAT(refused(R"({"weight_map":"model-1.safetensors"})"), HasSubstr("a string is not expected"));
  EXPECT_THAT(refused(R"({"weight_map":null})"), HasSubstr("null is not expected"));
  EXPECT_THAT(refused(R"({"weight_map":{"a":1}})"), HasSubstr("a number is not expected"));
  EXPECT_THAT(refused(R"({"weight_map":{"a":{}}})"), HasSubstr("the shard of \"a\" is not a string"));
  EXPECT_THAT(refused(R"({"weight_map":{"a":["model-1.safetensors"]}})"),
              HasSubstr("an array is not expected"));
  EXPECT_THAT(refused(R"({"weight_map":{"a":"model-1.safetensors","a":"model-2.safetensors"}})"),
              HasSubstr("\"a\" stands twice"));
  EXPECT_THAT(refused(R"({"weight_map":{},"weight_map":{}})"), HasSubstr("weight_map stands twice"));
  EXPECT_THAT(refused("{\"x\":" + std::string(100'000, '[')), HasSubstr("nested deeper than 64 levels"));
}

// A hundred thousand tensors must not take a search of all of them each.
TEST_F(Shards, ALargeIndexIsReadInGoodTime) {
  std::string header = "{";
  std::string map = R"({"weight_map":{)";
  for (int i = 0; i < 100'000; ++i) {
    header +=
        fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i == 0 ? "" : ",", i);
    map += fmt::format(R"({}"t{}":"big.safetensors")", i == 0 ? "" : ",", i);
  }
  folder_.write("big.safetensors", safetensors(header + "}"));
  index(map + "}}");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Checkpoint::open(folder_.path()).value().names().size(), 100'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20))
      << "quadratic: minutes; here: well below a second";
}

}  // namespace
}  // namespace lockstep
