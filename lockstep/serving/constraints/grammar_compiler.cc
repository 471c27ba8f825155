#include "lockstep/serving/constraints/grammar_compiler.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/serving/constraints/regex_check.h"
#include "lockstep/serving/constraints/schema_check.h"

#ifdef LOCKSTEP_HAS_XGRAMMAR
#include <xgrammar/xgrammar.h>

namespace lockstep::serving::constraints {
namespace {

constexpr size_t kMaxFormBytes = size_t{256} << 10;
constexpr size_t kMaxGrammarBytes = size_t{8} << 10;
constexpr int64_t kMaxCacheBytes = int64_t{256} << 20;
constexpr size_t kMaxComplaintBytes = 300;
constexpr int kMaxNewlines = 3;  // tokens of line feeds between an opening and what it opens

void set_bit(std::span<uint32_t> words, int32_t id, uint32_t bit) {
  uint32_t& word = words[static_cast<size_t>(id) / 32];
  word = (word & ~(uint32_t{1} << (id % 32))) | bit << (id % 32);
}

// Without the time and the place in the library's source that it puts in front.
std::string complaint(std::string_view said) {
  constexpr std::string_view kSource = ".cc:";
  if (const size_t source = said.find(kSource); source != std::string_view::npos)
    said.remove_prefix(std::min(said.find(": ", source), said.size() - 2) + 2);
  const size_t end = said.find_last_not_of('\n');
  return std::string(said.substr(0, std::min(end + 1, kMaxComplaintBytes)));
}

// JSON has no use for these: in strings they must be escaped, between tokens there are spaces and line feeds.
bool has_control(std::string_view bytes) {
  return std::any_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r'; });
}

// Whether arguments or the whole are JSON, and not text in tags, where any character may stand.
bool is_json(const OutputForm& form) {
  return form.kind == OutputForm::Kind::kJsonSchema ||
         (form.kind == OutputForm::Kind::kStructure &&
          form.text.find(R"("style":"json")") != std::string::npos);
}

bool is_line_feeds(std::string_view bytes) {
  return !bytes.empty() && bytes.find_first_not_of("\r\n") == std::string_view::npos;
}

}  // namespace

struct CompiledForm::Impl {
  const Tokenizer* tokenizer;
  std::vector<int32_t> eos_ids;
  std::vector<int32_t> line_feed_ids;
  std::vector<int32_t> barred_ids;  // of JSON: the library lets some into strings
  xgrammar::CompiledGrammar grammar;
};

namespace {

// From the first token on, or behind openings.
class FormConstraint : public runtime::TokenConstraint {
 public:
  FormConstraint(std::shared_ptr<const CompiledForm::Impl> form, std::vector<Opening> openings)
      : form_(std::move(form)),
        openings_(std::move(openings)),
        matcher_(form_->grammar),
        phase_(openings_.empty() ? Phase::kForm : Phase::kBefore) {}

  void allow(std::span<uint32_t> words) override {
    std::fill(words.begin(), words.end(), ~uint32_t{0});
    if (phase_ == Phase::kBefore) {
      if (openings_[num_opened_].end == Opening::End::kBarred)
        for (const int32_t id : form_->eos_ids) set_bit(words, id, 0);
      return;
    }
    auto size = static_cast<int64_t>(words.size());
    DLTensor mask{.data = words.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &size,
                  .strides = nullptr,
                  .byte_offset = 0};
    matcher_.FillNextTokenBitmask(&mask);
    for (const int32_t id : form_->barred_ids) set_bit(words, id, 0);
    if (phase_ == Phase::kLineFeeds)
      for (const int32_t id : form_->line_feed_ids) set_bit(words, id, 1);
  }

  bool accept(int32_t token_id) override {
    const std::string_view bytes = form_->tokenizer->token_bytes(token_id);
    if (phase_ == Phase::kBefore) return accept_before(bytes);
    if (phase_ == Phase::kLineFeeds && is_line_feeds(bytes)) {
      if (++num_line_feeds_ == kMaxNewlines) phase_ = Phase::kForm;
      return true;
    }
    phase_ = Phase::kForm;
    return matcher_.AcceptToken(token_id);
  }

 private:
  enum class Phase : unsigned char { kBefore, kLineFeeds, kForm };

  bool accept_before(std::string_view bytes) {
    tail_ += bytes;
    while (num_opened_ < openings_.size()) {
      const std::string& marker = openings_[num_opened_].marker;
      const size_t place = tail_.find(marker);
      if (place == std::string::npos) {
        if (tail_.size() > marker.size()) tail_.erase(0, tail_.size() - marker.size());
        return true;
      }
      tail_.erase(0, place + marker.size());
      ++num_opened_;
    }
    phase_ = Phase::kLineFeeds;
    tail_.erase(0, std::min(tail_.find_first_not_of("\r\n"), tail_.size()));
    if (tail_.empty()) return true;
    phase_ = Phase::kForm;
    return matcher_.AcceptString(tail_);
  }

  const std::shared_ptr<const CompiledForm::Impl> form_;
  const std::vector<Opening> openings_;
  xgrammar::GrammarMatcher matcher_;
  Phase phase_;
  size_t num_opened_ = 0;
  std::string tail_;  // of the output before the next opening
  int num_line_feeds_ = 0;
};

}  // namespace

std::shared_ptr<runtime::TokenConstraint> CompiledForm::start(std::vector<Opening> openings) const {
  return std::make_shared<FormConstraint>(impl_, std::move(openings));
}

struct GrammarCompiler::Impl {
  const Tokenizer& tokenizer;
  const int vocab;
  const std::vector<int32_t> eos_ids, markers;
  std::vector<int32_t> line_feed_ids, control_ids;
  std::once_flag once;
  std::optional<xgrammar::GrammarCompiler> compiler;  // made with the first form: it takes time and memory

  bool has(const std::vector<int32_t>& ids, int32_t id) const {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }

  void make_compiler() {
    std::vector<std::string> spellings(static_cast<size_t>(vocab));
    for (int32_t id = 0; id < vocab; ++id) {
      const bool is_hidden = has(eos_ids, id) || (tokenizer.is_special(id) && !has(markers, id));
      if (is_hidden) continue;  // no text: never allowed
      spellings[static_cast<size_t>(id)] = tokenizer.token_bytes(id);
      if (is_line_feeds(spellings[static_cast<size_t>(id)])) line_feed_ids.push_back(id);
      if (has_control(spellings[static_cast<size_t>(id)])) control_ids.push_back(id);
    }
    const xgrammar::TokenizerInfo info(spellings, xgrammar::VocabType::RAW, vocab, eos_ids);
    compiler.emplace(info, /*max_threads=*/1, /*cache_enabled=*/true, kMaxCacheBytes);
  }

  xgrammar::CompiledGrammar compile(const OutputForm& form) {
    switch (form.kind) {
      case OutputForm::Kind::kJsonSchema:
        return compiler->CompileJSONSchema(form.text, /*any_whitespace=*/true, std::nullopt, std::nullopt,
                                           /*strict_mode=*/false, kMaxWhitespace);
      case OutputForm::Kind::kRegex:
        return compiler->CompileRegex(form.text);
      case OutputForm::Kind::kGrammar:
        return compiler->CompileGrammar(form.text);
      case OutputForm::Kind::kStructure:
        break;
    }
    return compiler->CompileStructuralTag(form.text);
  }
};

// Their bits are set in masks of the vocabulary's size.
static std::vector<int32_t> within(int vocab, std::vector<int32_t> ids) {
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= vocab; });
  return ids;
}

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, const runtime::ModelInfo& model,
                                 std::vector<int32_t> markers)
    : impl_(new Impl{.tokenizer = tokenizer,
                     .vocab = model.vocab,
                     .eos_ids = within(model.vocab, model.eos_token_ids),
                     .markers = std::move(markers),
                     .line_feed_ids = {},
                     .control_ids = {},
                     .once = {},
                     .compiler = {}}) {}
GrammarCompiler::~GrammarCompiler() = default;

bool GrammarCompiler::is_available() { return true; }

Result<CompiledForm> GrammarCompiler::compile(const OutputForm& form) const {
  // A grammar of a client's own rules can be of any kind, and takes the longest to compile.
  const size_t limit = form.kind == OutputForm::Kind::kGrammar ? kMaxGrammarBytes : kMaxFormBytes;
  if (form.text.size() > limit)
    return invalid_argument(form.field, "'{}' has {} bytes, more than the limit of {}", form.field,
                            form.text.size(), limit);
  if (impl_->eos_ids.empty())
    return invalid_argument(form.field, "'{}' needs an end-of-sequence token; the model has 0", form.field);
  if (form.kind == OutputForm::Kind::kRegex)
    if (Status checked = check_regex(form.text, form.field); !checked) return checked.error();
  try {
    std::call_once(impl_->once, [&] { impl_->make_compiler(); });
    const CompiledForm compiled(std::make_shared<const CompiledForm::Impl>(
        CompiledForm::Impl{.tokenizer = &impl_->tokenizer,
                           .eos_ids = impl_->eos_ids,
                           .line_feed_ids = impl_->line_feed_ids,
                           .barred_ids = is_json(form) ? impl_->control_ids : std::vector<int32_t>(),
                           .grammar = impl_->compile(form)}));
    std::vector<uint32_t> words(static_cast<size_t>(impl_->vocab + 31) / 32);
    compiled.start({})->allow(words);
    if (std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; }))
      return invalid_argument(form.field, "'{}' allows no output: none of {} tokens may begin it", form.field,
                              impl_->vocab);
    return compiled;
  } catch (const std::exception& failure) {
    return invalid_argument(form.field, "'{}' cannot be enforced: {}", form.field, complaint(failure.what()));
  }
}

}  // namespace lockstep::serving::constraints

#else

namespace lockstep::serving::constraints {

struct CompiledForm::Impl {};
std::shared_ptr<runtime::TokenConstraint> CompiledForm::start(std::vector<Opening> /*openings*/) const {
  return nullptr;
}

struct GrammarCompiler::Impl {};
GrammarCompiler::GrammarCompiler(const Tokenizer& /*tokenizer*/, const runtime::ModelInfo& /*model*/,
                                 std::vector<int32_t> /*markers*/) {}
GrammarCompiler::~GrammarCompiler() = default;

bool GrammarCompiler::is_available() { return false; }

Result<CompiledForm> GrammarCompiler::compile(const OutputForm& form) const {
  return invalid_argument(form.field,
                          "'{}' is not supported by this build, which was made without xgrammar: run "
                          "tools/fetch_xgrammar.sh and build again, or leave its {} bytes out",
                          form.field, form.text.size());
}

}  // namespace lockstep::serving::constraints
#endif
