// Ids and texts against what Hugging Face's tokenizers library recorded
// (tools/record_tokenizer_expectations.py), and against the prompts of the golden files.
#include <cstdlib>
#include <set>
#include <thread>

#include "tests/serving/tokenizer_fixture.h"
#include "tests/source_dir.h"

namespace lockstep::serving {
namespace {

using Ids = std::vector<int32_t>;

Tokenizer load_model(const std::string& name) {
  auto tokenizer = Tokenizer::load(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "models" / name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(tokenizer).value();
}

void expect_case(const Tokenizer& tokenizer, const Json& recorded) {
  const auto text = recorded["text"].get<std::string>();
  const auto ids = recorded["ids"].get<Ids>();
  const auto decoded = recorded.value("decoded", text);
  EXPECT_EQ(tokenizer.encode(text, AddedTokens::kParse), ids) << to_text(text);
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kKeep), decoded);
  EXPECT_EQ(tokenizer.decode(ids, SpecialTokens::kSkip), recorded.value("skipped", decoded));
}

class TutorTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(TutorTokenizer, AgreesWithTheRecordedIdsAndTexts) {
  const Tokenizer tokenizer = load_model(GetParam());
  const auto cases = read_json_lines(tokenizer_data(GetParam() + std::string(".jsonl")));
  EXPECT_GE(cases.size(), 200u);
  for (const Json& recorded : cases) expect_case(tokenizer, recorded);
}

TEST_P(TutorTokenizer, AgreesWithTheGoldenPromptsAndReplies) {
  const Tokenizer tokenizer = load_model(GetParam());
  const auto text =
      read_file(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/golden" / GetParam() / "golden.json");
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto golden = parse_json(*text);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  ASSERT_EQ(golden->size(), 12u);
  for (const Json& request : *golden) {
    EXPECT_EQ(tokenizer.encode(request["prompt"].get<std::string>(), AddedTokens::kParse),
              request["input_ids"].get<Ids>());
    EXPECT_EQ(tokenizer.decode(request["greedy_ids"].get<Ids>(), SpecialTokens::kKeep),
              request["greedy_text"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, TutorTokenizer,
                         testing::Values("tutor-deepseek-v3", "tutor-qwen3.5-moe"),
                         [](const auto& checkpoint) { return std::string(checkpoint.param).substr(6, 4); });

TEST(MadeUpTokenizers, AgreeWithTheRecordedIdsAndTexts) {
  const auto configs = read_json_lines(tokenizer_data("encodings.jsonl"));
  EXPECT_EQ(configs.size(), 45u);
  for (const Json& config : configs) {
    SCOPED_TRACE(to_text(config).substr(0, 600));
    const Tokenizer tokenizer = load_made_up(config);
    for (const Json& recorded : config["cases"]) expect_case(tokenizer, recorded);
  }
}

TEST(TrainedTokenizers, AgreeWithTheRecordedIdsAndTexts) {
  const auto lines = read_json_lines(tokenizer_data("trained.jsonl"));
  EXPECT_EQ(lines.size(), 6u);
  for (const Json& line : lines) {
    SCOPED_TRACE(line["name"].get<std::string>());
    const auto tokenizer = Tokenizer::from_json(to_text(line["tokenizer"]));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_GE(line["cases"].size(), 200u);
    for (const Json& recorded : line["cases"]) expect_case(*tokenizer, recorded);
    for (const Json& sampled : line["decoded"]) {
      const auto ids = sampled[0].get<Ids>();
      EXPECT_EQ(tokenizer->decode(ids, SpecialTokens::kKeep), sampled[1].get<std::string>())
          << to_text(sampled);
      EXPECT_EQ(tokenizer->decode(ids, SpecialTokens::kSkip), sampled[2].get<std::string>())
          << to_text(sampled);
    }
  }
}

TEST(Tokenizer, ServesManyThreadsAtOnce) {
  const Tokenizer tokenizer = load_model("tutor-deepseek-v3");
  const auto cases = read_json_lines(tokenizer_data("tutor-deepseek-v3.jsonl"));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& mistakes : wrong)
    threads.emplace_back([&] {
      for (const Json& recorded : cases) {
        const auto ids = recorded["ids"].get<Ids>();
        mistakes += tokenizer.encode(recorded["text"].get<std::string>(), AddedTokens::kParse) != ids;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// Published tokenizers are too large for the repository: one folder each, with a tokenizer.json and a
// texts.jsonl.
TEST(PublishedTokenizers, AgreeWithTheRecordedIdsAndTexts) {
  const char* const archive = std::getenv("LOCKSTEP_TOKENIZER_ARCHIVE");
  if (archive == nullptr)
    GTEST_SKIP() << "LOCKSTEP_TOKENIZER_ARCHIVE is not set: it names a folder of published tokenizers with "
                    "recorded texts";
  std::set<std::string> loaded;
  for (const auto& folder : std::filesystem::directory_iterator(archive)) {
    if (!std::filesystem::exists(folder.path() / "tokenizer.json")) continue;
    SCOPED_TRACE(folder.path().string());
    const auto tokenizer = Tokenizer::load(folder.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    loaded.insert(folder.path().filename().string());
    for (const Json& recorded : read_json_lines(folder.path() / "texts.jsonl")) {
      const auto ids = recorded["ids"].get<Ids>();
      EXPECT_EQ(tokenizer->encode(recorded["text"].get<std::string>(), AddedTokens::kParse), ids)
          << to_text(recorded["text"]);
      EXPECT_EQ(tokenizer->decode(ids, SpecialTokens::kKeep), recorded["decoded"].get<std::string>());
      if (!recorded["with_special"].is_array()) continue;
      Ids framed(tokenizer->prompt_prefix().begin(), tokenizer->prompt_prefix().end());
      framed.insert(framed.end(), ids.begin(), ids.end());
      framed.insert(framed.end(), tokenizer->prompt_suffix().begin(), tokenizer->prompt_suffix().end());
      EXPECT_EQ(framed, recorded["with_special"].get<Ids>());
    }
  }
  EXPECT_GE(loaded.size(), 5u);
}

}  // namespace
}  // namespace lockstep::serving
