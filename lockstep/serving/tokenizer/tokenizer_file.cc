#include "lockstep/serving/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/json_fault.h"
#include "lockstep/serving/tokenizer/json_fields.h"

namespace lockstep::serving::tokenizing {
namespace {

constexpr size_t kMaxBytes = size_t{128} << 20;
constexpr int kMaxDepth = 64;
constexpr size_t kMaxKeys = 1024;  // of one object of the head
constexpr size_t kMaxAddedTokens = size_t{1} << 16;
constexpr size_t kMaxAddedBytes = 1024;

// Takes the two lists out of the stream of events and lets the base class build a document from the rest.
class FileReader : public nlohmann::detail::json_sax_dom_parser<Json> {
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;

 public:
  FileReader(std::string_view text, TokenizerFile& file) : Base(file.head, false), text_(text), file_(file) {}

  bool key(std::string& name) {
    if (part_ == Part::kVocab) {
      file_.vocab.push_back({std::move(name), 0});
      return true;
    }
    if (keys_.back().size() == kMaxKeys) return refuse("an object of more than {} fields", kMaxKeys);
    if (!keys_.back().insert(name).second) return refuse("the key \"{}\" stands twice in one object", name);
    if (depth_ == 1) outer_key_ = name;
    if (depth_ == 2) inner_key_ = name;
    return Base::key(name);
  }

  bool start_object(std::size_t size) {
    if (part_ != Part::kHead) return refuse_value("an object");
    if (is_at("vocab")) {
      part_ = Part::kVocab;
      file_.has_vocab = true;
      return Base::null();
    }
    keys_.emplace_back();
    return enter() && Base::start_object(size);
  }
  bool end_object() {
    if (part_ == Part::kVocab) {
      part_ = Part::kHead;
      return true;
    }
    keys_.pop_back();
    --depth_;
    return Base::end_object();
  }

  bool start_array(std::size_t size) {
    if (part_ == Part::kMerges && num_parts_ < 0) {
      num_parts_ = 0;
      file_.merges.emplace_back();
      return true;
    }
    if (part_ == Part::kScores && num_parts_ < 0) {
      num_parts_ = 0;
      file_.vocab.push_back({.spelling = {}, .id = static_cast<int64_t>(file_.vocab.size())});
      return true;
    }
    if (part_ != Part::kHead) return refuse_value("an array");
    if (is_at("vocab")) {
      part_ = Part::kScores;
      file_.has_vocab = file_.has_scores = true;
      return Base::null();
    }
    if (is_at("merges")) {
      part_ = Part::kMerges;
      file_.has_merges = true;
      return Base::null();
    }
    return enter() && Base::start_array(size);
  }
  bool end_array() {
    if (part_ == Part::kHead) {
      --depth_;
      return Base::end_array();
    }
    if (num_parts_ < 0) {
      part_ = Part::kHead;
      return true;
    }
    if (num_parts_ != 2)
      return refuse("model.{}[{}] has {} parts instead of 2", part_ == Part::kScores ? "vocab" : "merges",
                    (part_ == Part::kScores ? file_.vocab.size() : file_.merges.size()) - 1, num_parts_);
    num_parts_ = -1;
    return true;
  }

  bool string(std::string& value) {
    if (part_ == Part::kHead) return Base::string(value);
    if (part_ == Part::kVocab) return refuse_value("text");
    if (part_ == Part::kScores) return scored_token(value);
    return num_parts_ < 0 ? merge_line(value) : merge_part(value);
  }
  bool number_integer(int64_t value) {
    if (part_ == Part::kHead) return Base::number_integer(value);
    if (part_ == Part::kScores) return score(static_cast<double>(value));
    return part_ == Part::kVocab ? entry_id(value) : refuse_value("a number");
  }
  bool number_unsigned(uint64_t value) {
    if (part_ == Part::kHead) return Base::number_unsigned(value);
    if (part_ == Part::kScores) return score(static_cast<double>(value));
    return part_ == Part::kVocab ? entry_id(static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)))
                                 : refuse_value("a number");
  }
  bool number_float(double value, const std::string& text) {
    if (part_ == Part::kScores) return score(value);
    return part_ == Part::kHead ? Base::number_float(value, text) : refuse_value("a fraction");
  }
  bool boolean(bool value) {
    return part_ == Part::kHead ? Base::boolean(value) : refuse_value("true or false");
  }
  bool null() { return part_ == Part::kHead ? Base::null() : refuse_value("null"); }

  template <class Exception>
  bool parse_error(std::size_t position, const std::string& last_token, const Exception& why) {
    return refuse("{}", json_fault(text_, position, last_token, why));
  }

  std::string refusal;

 private:
  enum class Part : unsigned char { kHead, kVocab, kScores, kMerges };

  template <class... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    refusal = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool refuse_value(std::string_view what) {
    if (part_ == Part::kVocab)
      return refuse("model.vocab: the id of {} is {}, not an integer", excerpt(file_.vocab.back().spelling),
                    what);
    if (part_ == Part::kScores)
      return refuse("model.vocab[{}] holds {}: it must be a token and its score",
                    file_.vocab.size() - (num_parts_ < 0 ? 0 : 1), what);
    const size_t index = file_.merges.size() - (num_parts_ < 0 ? 0 : 1);
    return refuse("model.merges[{}] holds {} where text must be", index, what);
  }
  bool enter() {
    inner_key_.clear();
    if (++depth_ > kMaxDepth) return refuse("nested deeper than {} levels", kMaxDepth);
    return true;
  }
  bool is_at(std::string_view key) const { return depth_ == 2 && outer_key_ == "model" && inner_key_ == key; }

  bool entry_id(int64_t id) {
    file_.vocab.back().id = id;
    return true;
  }
  bool scored_token(std::string& token) {
    if (num_parts_ != 0) return refuse_value("text");
    file_.vocab.back().spelling = std::move(token);
    ++num_parts_;
    return true;
  }
  bool score(double value) {
    if (num_parts_ != 1) return refuse_value("a number");
    file_.vocab.back().score = value;
    ++num_parts_;
    return true;
  }
  bool merge_line(const std::string& line) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      return refuse("model.merges[{}] is {}, not two tokens with one space between", file_.merges.size(),
                    excerpt(line));
    file_.merges.push_back({line.substr(0, space), line.substr(space + 1)});
    return true;
  }
  bool merge_part(std::string& part) {
    if (num_parts_ < 2)
      (num_parts_ == 0 ? file_.merges.back().left : file_.merges.back().right) = std::move(part);
    ++num_parts_;
    return true;
  }

  const std::string_view text_;
  TokenizerFile& file_;
  Part part_ = Part::kHead;
  int depth_ = 0;
  std::string outer_key_;  // of the root
  std::string inner_key_;  // of the object below outer_key_
  int num_parts_ = -1;     // of the merge or scored token that is being read as an array; -1: none is
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view json) {
  if (json.size() > kMaxBytes)
    return invalid_argument("tokenizer.json", "tokenizer.json has {} bytes, more than the limit of {}",
                            json.size(), kMaxBytes);
  TokenizerFile file;
  FileReader reader(json, file);
  if (!Json::sax_parse(json, &reader))
    return invalid_argument("tokenizer.json", "tokenizer.json: {}", reader.refusal);
  return file;
}

Result<std::vector<AddedToken>> read_added_tokens(const Json& head) {
  std::vector<AddedToken> tokens;
  JsonFields root(head, "");
  if (root.any("added_tokens").is_null()) return tokens;
  const Json& entries = root.array("added_tokens");
  if (!root.ok()) return root.error();
  if (entries.size() > kMaxAddedTokens)
    return invalid_argument("added_tokens", "added_tokens has {} entries, more than the limit of {}",
                            entries.size(), kMaxAddedTokens);
  for (size_t i = 0; i < entries.size(); ++i) {
    JsonFields fields(entries[i], fmt::format("added_tokens[{}]", i));
    AddedToken token;
    const int64_t id = fields.integer("id");
    token.content = fields.text("content");
    token.single_word = fields.flag("single_word");
    token.lstrip = fields.flag("lstrip");
    token.rstrip = fields.flag("rstrip");
    token.normalized = fields.flag("normalized");
    token.special = fields.flag("special");
    if (id < 0 || id > Vocabulary::kMaxId)
      fields.complain(invalid_argument(fields.path_of("id"), "{} is {}: it must be between 0 and {}",
                                       fields.path_of("id"), id, Vocabulary::kMaxId));
    if (token.content.empty() || token.content.size() > kMaxAddedBytes)
      fields.complain(invalid_argument(fields.path_of("content"),
                                       "{} has {} bytes: it must have between 1 and {}",
                                       fields.path_of("content"), token.content.size(), kMaxAddedBytes));
    if (!fields.ok()) return fields.error();
    token.id = static_cast<int32_t>(id);
    token.searched = token.content;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace lockstep::serving::tokenizing
