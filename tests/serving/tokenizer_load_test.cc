// Files that are wrong, hostile, or ask for what is not supported: each is refused with the field and the
// value named.
#include <functional>

#include "tests/serving/tokenizer_fixture.h"

namespace lockstep::serving {
namespace {

std::string refusal_of_text(std::string_view json) {
  const auto tokenizer = Tokenizer::from_json(json);
  return tokenizer.ok() ? "loaded" : tokenizer.error().message;
}

std::string refusal(const std::function<void(Json&)>& change) {
  Json file = made_up({{"merges", merge_list({{"a", "b"}, {"ab", "c"}})}});
  change(file);
  return refusal_of_text(to_text(file));
}

TEST(TokenizerLoad, ReadsBothSpellingsOfMerges) {
  Json file = made_up({{"merges", merge_list({{"a", "b"}, {"ab", "c"}})}});
  EXPECT_EQ(refusal_of_text(to_text(file)), "loaded");
  file["model"]["merges"] = {"a b", "ab c"};
  const auto tokenizer = Tokenizer::from_json(to_text(file));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("abcab", AddedTokens::kParse), (std::vector<int32_t>{257, 256}));
}

TEST(TokenizerLoad, ReadsAFileWithoutWhatMayBeLeftOut) {
  EXPECT_EQ(refusal([](Json& file) {
              for (const char* field : {"added_tokens", "normalizer", "post_processor"}) file.erase(field);
              for (const char* field :
                   {"type", "dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"})
                file["model"].erase(field);
            }),
            "loaded");
}

TEST(TokenizerLoad, NamesTheFileThatIsNotThere) {
  const auto tokenizer = Tokenizer::load("/nowhere");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_NE(tokenizer.error().message.find("/nowhere/tokenizer.json"), std::string::npos);
}

TEST(TokenizerLoad, RefusesWhatIsNotJson) {
  const std::string file =
      to_text(made_up({{"merges", merge_list({{"a", "b"}})}, {"added_tokens", {added_token(257, "<s>")}}}));
  for (size_t size = 0; size < file.size(); size += 7)
    EXPECT_NE(refusal_of_text(std::string_view(file).substr(0, size)).find("not JSON at byte"),
              std::string::npos)
        << size;
  EXPECT_EQ(refusal_of_text("[1]"), "tokenizer.json is an array of 1 entries, not an object");
  EXPECT_EQ(refusal_of_text("3"), "tokenizer.json is 3, not an object");
  EXPECT_EQ(refusal_of_text(std::string(100'000, '[')), "tokenizer.json: nested deeper than 64 levels");
  EXPECT_EQ(refusal_of_text(R"({"model":{"vocab":{"a":{"b":[]}}}})"),
            "tokenizer.json: model.vocab: the id of \"a\" is an object, not an integer");
  EXPECT_EQ(refusal_of_text(R"({"a":1,"a":2})"), "tokenizer.json: the key \"a\" stands twice in one object");
}

TEST(TokenizerLoad, RefusesAnObjectOfTooManyFields) {
  std::string file = "{";
  for (int i = 0; i < 1025; ++i) file += fmt::format("{}\"k{}\":1", i == 0 ? "" : ",", i);
  EXPECT_EQ(refusal_of_text(file + "}"), "tokenizer.json: an object of more than 1024 fields");
}

TEST(TokenizerLoad, NamesWhatIsWrongInTheModel) {
  EXPECT_EQ(refusal([](Json& f) { f.erase("model"); }), "model is null, not an object");
  EXPECT_EQ(refusal([](Json& f) { f["model"] = {1}; }), "model is an array of 1 entries, not an object");
  EXPECT_EQ(refusal([](Json& f) { f["model"].erase("vocab"); }),
            "model.vocab is missing: it must be an object");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["vocab"] = {{"a", 1}, {"b", 2}}; }),
            "model.merges[0] names the token \"ab\", which is not in model.vocab");
  EXPECT_EQ(refusal([](Json& f) { f["model"].erase("merges"); }),
            "model.merges is missing: it must be an array");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["merges"] = "a b"; }),
            "model.merges is missing: it must be an array");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["type"] = "Unigram"; }),
            "model.type is \"Unigram\": only byte-level BPE is supported");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["type"] = 5; }), "model.type is 5: it must be text");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["byte_fallback"] = true; }),
            "model.byte_fallback is true: SentencePiece-style models are not supported, only byte-level BPE");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["dropout"] = 0.1; }),
            "model.dropout is 0.1: it must be null, for ids must not be random");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }),
            "model.end_of_word_suffix is \"</w>\": it must be null or empty");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["unk_token"] = "<unk>"; }),
            "model.unk_token is \"<unk>\", which is not in model.vocab");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["ignore_merges"] = "no"; }),
            "model.ignore_merges is \"no\": it must be true or false");
}

TEST(TokenizerLoad, NamesWhatIsWrongInTheVocabulary) {
  const auto with_entry = [](const char* token, const Json& id) {
    return refusal([&](Json& file) { file["model"]["vocab"][token] = id; });
  };
  EXPECT_EQ(with_entry("zz", -1),
            "model.vocab: the token \"zz\" has the id -1, which is not between 0 and 4194304");
  EXPECT_EQ(with_entry("zz", 2147483648),
            "model.vocab: the token \"zz\" has the id 2147483648, which is not between 0 and 4194304");
  EXPECT_EQ(
      with_entry("zz", uint64_t{1} << 63),
      "model.vocab: the token \"zz\" has the id 9223372036854775807, which is not between 0 and 4194304");
  EXPECT_EQ(with_entry("zz", 97), "model.vocab: the token \"zz\" has the id 97, which another token has too");
  EXPECT_EQ(with_entry("zz", "5"), "tokenizer.json: model.vocab: the id of \"zz\" is text, not an integer");
  EXPECT_EQ(with_entry("zz", 1.5),
            "tokenizer.json: model.vocab: the id of \"zz\" is a fraction, not an integer");
  EXPECT_EQ(with_entry("zz", nullptr),
            "tokenizer.json: model.vocab: the id of \"zz\" is null, not an integer");
  EXPECT_EQ(refusal_of_text(R"({"model":{"vocab":{"a":0,"a":1},"merges":[]},"pre_tokenizer":)" +
                            to_text(byte_level_step()) + R"(,"decoder":)" + to_text(byte_level_step()) + "}"),
            "model.vocab: the token \"a\" stands twice, with the ids 0 and 1");
}

TEST(TokenizerLoad, NamesWhatIsWrongInTheMerges) {
  const auto with_merge = [](const Json& merge) {
    return refusal([&](Json& file) { file["model"]["merges"].push_back(merge); });
  };
  EXPECT_EQ(with_merge({"a", "zz"}), "model.merges[2] names the token \"zz\", which is not in model.vocab");
  EXPECT_EQ(with_merge({"a", "c"}), "model.merges[2] names the token \"ac\", which is not in model.vocab");
  EXPECT_EQ(with_merge("a b c"),
            "tokenizer.json: model.merges[2] is \"a b c\", not two tokens with one space between");
  EXPECT_EQ(with_merge("ab"),
            "tokenizer.json: model.merges[2] is \"ab\", not two tokens with one space between");
  EXPECT_EQ(with_merge({"a"}), "tokenizer.json: model.merges[2] has 1 parts instead of 2");
  EXPECT_EQ(with_merge({"a", "b", "c"}), "tokenizer.json: model.merges[2] has 3 parts instead of 2");
  EXPECT_EQ(with_merge({"a", 5}), "tokenizer.json: model.merges[2] holds a number where text must be");
  EXPECT_EQ(with_merge(5), "tokenizer.json: model.merges[2] holds a number where text must be");
  EXPECT_EQ(with_merge(Json::array({Json::array({"a", "b"})})),
            "tokenizer.json: model.merges[2] holds an array where text must be");
}

TEST(TokenizerLoad, NamesWhatIsWrongInTheAddedTokens) {
  const auto with_token = [](const Json& token) {
    return refusal([&](Json& file) { file["added_tokens"] = {added_token(258, "<s>"), token}; });
  };
  EXPECT_EQ(with_token(added_token(259, "<t>")), "loaded");
  EXPECT_EQ(with_token(5), "added_tokens[1] is 5, not an object");
  EXPECT_EQ(with_token(added_token(-1, "<t>")), "added_tokens[1].id is -1: it must be between 0 and 4194304");
  EXPECT_EQ(with_token(added_token(1 << 30, "<t>")),
            "added_tokens[1].id is 1073741824: it must be between 0 and 4194304");
  EXPECT_EQ(with_token(added_token(258, "<t>")),
            "added_tokens[1]: \"<t>\" has the id 258, which another token has too");
  EXPECT_EQ(with_token(added_token(97, "<t>")),
            "added_tokens[1]: \"<t>\" has the id 97, which another token has too");
  EXPECT_EQ(with_token(added_token(259, "a")),
            "added_tokens[1]: \"a\" has the id 259, but 97 in model.vocab");
  EXPECT_EQ(with_token(added_token(97, "a")), "loaded");
  EXPECT_EQ(with_token(added_token(259, "<s>")),
            "added_tokens[1]: \"<s>\" is added twice, with the ids 258 and 259");
  EXPECT_EQ(with_token(added_token(259, "")),
            "added_tokens[1].content has 0 bytes: it must have between 1 and 1024");
  EXPECT_EQ(with_token(added_token(259, std::string(1025, 'x'))),
            "added_tokens[1].content has 1025 bytes: it must have between 1 and 1024");
  EXPECT_EQ(with_token(added_token(259, "<t>", {{"special", 1}})),
            "added_tokens[1].special is 1: it must be true or false");
  EXPECT_EQ(with_token({{"id", 259}}), "added_tokens[1].content is missing: it must be text");
  EXPECT_EQ(refusal([](Json& f) { f["added_tokens"] = 3; }), "added_tokens is 3: it must be an array");
}

TEST(TokenizerLoad, NamesOtherPartsThatAreNotSupported) {
  EXPECT_EQ(refusal([](Json& f) { f["decoder"] = nullptr; }), "decoder is null: only ByteLevel is supported");
  EXPECT_EQ(refusal([](Json& f) { f["decoder"] = {{"type", "Metaspace"}}; }),
            "decoder is Metaspace: only ByteLevel is supported");
  EXPECT_EQ(
      refusal([](Json& f) { f["decoder"] = {{"type", "Sequence"}, {"decoders", {byte_level_step()}}}; }),
      "loaded");
  EXPECT_EQ(refusal([](Json& f) { f["decoder"] = {{"type", "Sequence"}, {"decoders", Json::array()}}; }),
            "decoder is a Sequence of 0 decoders: only one, ByteLevel, is supported");
  EXPECT_EQ(refusal([](Json& f) { f["post_processor"] = {{"type", "BertProcessing"}}; }),
            "post_processor: the post-processor \"BertProcessing\" is not supported (supported: ByteLevel, "
            "TemplateProcessing, "
            "Sequence)");
  EXPECT_EQ(refusal([](Json& f) {
              f["post_processor"] = {
                  {"type", "TemplateProcessing"},
                  {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                  {"special_tokens", {{"<s>", {{"ids", {900}}}}}}};
            }),
            "post_processor.special_tokens.<s>.ids holds 900: it must hold ids between 0 and 257");
  EXPECT_EQ(
      refusal([](Json& f) { f["normalizer"] = {{"type", "Replace"}}; }),
      "normalizer: the normalizer \"Replace\" is not supported (supported: NFC, NFD, NFKC, NFKD, Sequence)");
}

// A pattern may cost, but it never hangs and the ids are the same each time.
TEST(TokenizerLoad, SurvivesACatastrophicPattern) {
  Json file = made_up({{"pre_tokenizer", steps({split_step("(?:a|a)*b|\\s+$")})}});
  const auto tokenizer = Tokenizer::from_json(to_text(file));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string text = std::string(20'000, 'a') + std::string(20'000, ' ') + "c";
  const auto ids = tokenizer->encode(text, AddedTokens::kParse);
  EXPECT_EQ(tokenizer->decode(ids, SpecialTokens::kKeep), text);
  EXPECT_EQ(tokenizer->encode(text, AddedTokens::kParse), ids);
}

}  // namespace
}  // namespace lockstep::serving
