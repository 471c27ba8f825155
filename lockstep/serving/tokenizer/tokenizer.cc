#include "lockstep/serving/tokenizer/tokenizer.h"

#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/serving/tokenizer/added_tokens.h"
#include "lockstep/serving/tokenizer/byte_alphabet.h"
#include "lockstep/serving/tokenizer/decoder.h"
#include "lockstep/serving/tokenizer/incremental_decoder.h"
#include "lockstep/serving/tokenizer/json_fields.h"
#include "lockstep/serving/tokenizer/model.h"
#include "lockstep/serving/tokenizer/normalizer.h"
#include "lockstep/serving/tokenizer/post_processor.h"
#include "lockstep/serving/tokenizer/pre_tokenizer.h"
#include "lockstep/serving/tokenizer/tokenizer_file.h"
#include "lockstep/serving/tokenizer/unicode.h"
#include "lockstep/serving/tokenizer/utf8.h"
#include "lockstep/serving/tokenizer/workspace.h"

namespace lockstep::serving {

using namespace tokenizing;

namespace {

// The two passes in which added tokens are found: in the text as it is, and in what the normalizer made of
// it.
struct Finders {
  AddedTokenFinder raw;
  AddedTokenFinder normalized;
};

bool is_all_white_space(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const CodePoint character = code_point_at(text, i);
    if (!is_white_space(character.value)) return false;
    i += static_cast<size_t>(character.num_bytes);
  }
  return true;
}

// Special tokens come first: where two are searched for by the same text, theirs is the id.
Finders make_finders(const std::vector<AddedToken>& tokens) {
  std::vector<AddedToken> raw, normalized;
  for (const bool special : {true, false})
    for (const AddedToken& token : tokens)
      if (token.special == special) (token.normalized ? normalized : raw).push_back(token);
  return {AddedTokenFinder(std::move(raw)), AddedTokenFinder(std::move(normalized))};
}

}  // namespace

struct Tokenizer::Parts {
  Vocabulary vocabulary;
  Model model;
  TokenDecoder decoder;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PromptFrame frame;
  Finders all_added;
  Finders white_space_added;  // what kAsText still finds
  mutable WorkspacePool workspaces = {};

  // One text on its way to ids.
  struct Encoding {
    const Finders& finders;
    AddedIds added_ids;
    Workspace& workspace;
    std::vector<int32_t> ids;
  };
  void encode_raw(std::string_view text, Encoding& encoding) const;
  void encode_normalized(std::string_view text, TextPlace place, Encoding& encoding) const;
};

// Pass 1, then the normalizer on what lies between.
void Tokenizer::Parts::encode_raw(std::string_view text, Encoding& encoding) const {
  for (const TextSpan& span : encoding.finders.raw.split(text)) {
    const TextPlace place = span.text.data() == text.data() ? TextPlace::kFirst : TextPlace::kLater;
    if (span.id >= 0) {
      encoding.ids.push_back(span.id);
    } else if (normalizer.changes_nothing()) {
      encode_normalized(span.text, place, encoding);
    } else {
      encode_normalized(normalizer.apply(span.text), place, encoding);
    }
  }
}

// Pass 2, then pieces, then the model.
void Tokenizer::Parts::encode_normalized(std::string_view text, TextPlace place, Encoding& encoding) const {
  for (const TextSpan& span : encoding.finders.normalized.split(text)) {
    if (span.id >= 0) {
      encoding.ids.push_back(span.id);
      continue;
    }
    const bool is_first = place == TextPlace::kFirst && span.text.data() == text.data();
    const Pieces cut = pre_tokenizer.cut(span.text, is_first ? TextPlace::kFirst : TextPlace::kLater);
    for (const std::string_view piece : cut.pieces)
      model.encode(piece, vocabulary, encoding.added_ids, encoding.workspace, encoding.ids);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer.json";
  const auto text = read_file(path);
  if (!text) return text.error();
  auto tokenizer = from_json(*text);
  if (!tokenizer) {
    Error error = tokenizer.error();
    error.message = fmt::format("{}: {}", path.string(), error.message);
    return error;
  }
  return tokenizer;
}

Result<Tokenizer> Tokenizer::from_json(std::string_view tokenizer_json) {
  auto file = read_tokenizer_file(tokenizer_json);
  if (!file) return file.error();
  if (!file->head.is_object())
    return invalid_argument("tokenizer.json", "tokenizer.json is {}, not an object", excerpt(file->head));
  const JsonFields root(file->head, "");
  auto pre_tokenizer = PreTokenizer::read(root.any("pre_tokenizer"), "pre_tokenizer");
  if (!pre_tokenizer) return pre_tokenizer.error();
  const auto options =
      read_model_options(*file, pre_tokenizer->is_byte_level() ? Alphabet::kBytes : Alphabet::kCharacters);
  if (!options) return options.error();
  auto normalizer = Normalizer::read(root.any("normalizer"), "normalizer");
  if (!normalizer) return normalizer.error();
  auto decoder = TokenDecoder::read(root.any("decoder"), "decoder");
  if (!decoder) return decoder.error();
  auto added = read_added_tokens(file->head);
  if (!added) return added.error();
  for (AddedToken& token : *added)
    if (token.normalized) token.searched = normalizer->apply(token.content);
  auto vocabulary = Vocabulary::build(file->vocab, *added, *decoder);
  if (!vocabulary) return vocabulary.error();
  auto model = Model::build(*file, *options, *vocabulary);
  if (!model) return model.error();
  auto frame = read_post_processor(root.any("post_processor"), vocabulary->size(), "post_processor");
  if (!frame) return frame.error();

  std::vector<AddedToken> white_space;
  for (const AddedToken& token : *added)
    if (!token.special && is_all_white_space(token.content)) white_space.push_back(token);
  Finders all_finders = make_finders(*added);
  Finders white_space_finders = make_finders(white_space);
  return Tokenizer(std::unique_ptr<const Parts>(new Parts{
      std::move(*vocabulary), std::move(*model), std::move(*decoder), std::move(*normalizer),
      std::move(*pre_tokenizer), std::move(*frame), std::move(all_finders), std::move(white_space_finders)}));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, AddedTokens added_tokens) const {
  const bool as_text = added_tokens == AddedTokens::kAsText;
  WorkspacePool::Lease workspace = parts_->workspaces.take();
  Parts::Encoding encoding{.finders = as_text ? parts_->white_space_added : parts_->all_added,
                           .added_ids = as_text ? AddedIds::kAvoided : AddedIds::kAllowed,
                           .workspace = *workspace,
                           .ids = {}};
  if (is_valid_utf8(text)) {
    parts_->encode_raw(text, encoding);
  } else {
    parts_->encode_raw(repair_utf8(text), encoding);
  }
  return std::move(encoding.ids);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SpecialTokens special_tokens) const {
  std::string text;
  IncrementalDecoder decoder(*this, special_tokens);
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

std::string_view Tokenizer::token_bytes(int32_t id) const { return parts_->vocabulary.bytes(id); }

std::optional<int32_t> Tokenizer::find(std::string_view content) const {
  if (const auto id = parts_->vocabulary.find_added(content)) return id;
  if (!parts_->pre_tokenizer.is_byte_level()) return parts_->vocabulary.find_spelling(content);
  std::string spelling;
  spell(content, spelling);
  return parts_->vocabulary.find_spelling(spelling);
}

std::string_view Tokenizer::first_token_bytes(int32_t id) const { return parts_->vocabulary.first_bytes(id); }
const DecodeRule& Tokenizer::decode_rule() const { return parts_->decoder.rule(); }
bool Tokenizer::is_known(int32_t id) const { return parts_->vocabulary.is_known(id); }
bool Tokenizer::is_byte(int32_t id) const { return parts_->vocabulary.is_byte(id); }
bool Tokenizer::is_special(int32_t id) const { return parts_->vocabulary.is_special(id); }
bool Tokenizer::is_added(int32_t id) const { return parts_->vocabulary.is_added(id); }
int Tokenizer::size() const { return parts_->vocabulary.size(); }
std::span<const int32_t> Tokenizer::prompt_prefix() const { return parts_->frame.before; }
std::span<const int32_t> Tokenizer::prompt_suffix() const { return parts_->frame.after; }

}  // namespace lockstep::serving
