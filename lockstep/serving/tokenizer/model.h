#pragma once
// The "model" of tokenizer.json: what turns a piece of text into ids. Byte-pair encoding or Unigram; whatever
// such a file asks for and this cannot do exactly is refused by name.
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/serving/tokenizer/bpe.h"
#include "lockstep/serving/tokenizer/tokenizer_file.h"
#include "lockstep/serving/tokenizer/unigram.h"

namespace lockstep::serving::tokenizing {

struct ModelOptions {
  std::variant<Bpe::Options, Unigram::Options> options;
};

// Checks the fields before anything large is built.
Result<ModelOptions> read_model_options(const TokenizerFile& file, Alphabet alphabet);

class Model {
 public:
  static Result<Model> build(const TokenizerFile& file, const ModelOptions& options,
                             const Vocabulary& vocabulary);

  void encode(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids, Workspace& workspace,
              std::vector<int32_t>& ids) const {
    std::visit([&](const auto& model) { model.encode(piece, vocabulary, added_ids, workspace, ids); },
               model_);
  }

 private:
  explicit Model(Bpe bpe) : model_(std::move(bpe)) {}
  explicit Model(Unigram unigram) : model_(std::move(unigram)) {}
  std::variant<Bpe, Unigram> model_;
};

}  // namespace lockstep::serving::tokenizing
