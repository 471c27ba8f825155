#include "lockstep/serving/tokenizer/model.h"

#include <utility>

#include "lockstep/serving/tokenizer/json_fields.h"

namespace lockstep::serving::tokenizing {
namespace {

void check_bpe(const TokenizerFile& file, JsonFields& model) {
  if (!model.any("dropout").is_null())
    model.complain(invalid_argument("model.dropout",
                                    "model.dropout is {}: it must be null, for ids must not be random",
                                    excerpt(model.any("dropout"))));
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const std::string text = model.text_or(affix, ""); !text.empty())
      model.complain(invalid_argument(model.path_of(affix), "{} is {}: it must be null or empty",
                                      model.path_of(affix), excerpt(text)));
  if (!file.has_vocab || file.has_scores)
    model.complain(invalid_argument("model.vocab", "model.vocab is missing: it must be an object"));
  if (!file.has_merges)
    model.complain(invalid_argument("model.merges", "model.merges is missing: it must be an array"));
}

Result<ModelOptions> read_bpe(const TokenizerFile& file, JsonFields& model, Alphabet alphabet) {
  const Bpe::Options options{.alphabet = alphabet,
                             .ignore_merges = model.flag_or("ignore_merges", false),
                             .byte_fallback = model.flag_or("byte_fallback", false),
                             .unk_token = model.text_or("unk_token", ""),
                             .fuse_unk = model.flag_or("fuse_unk", false)};
  if (options.byte_fallback && alphabet == Alphabet::kBytes)
    model.complain(
        invalid_argument("model.byte_fallback",
                         "model.byte_fallback is true: with ByteLevel, every byte of 256 has a symbol"));
  check_bpe(file, model);
  if (!model.ok()) return model.error();
  return ModelOptions{options};
}

Result<ModelOptions> read_unigram(const TokenizerFile& file, JsonFields& model, Alphabet alphabet) {
  Unigram::Options options{.unk_id = model.any("unk_id").is_null() ? -1 : model.integer("unk_id"),
                           .byte_fallback = model.flag_or("byte_fallback", false)};
  if (!file.has_scores)
    model.complain(invalid_argument(
        "model.vocab", "model.vocab is missing: it must be an array of tokens and their scores"));
  if (alphabet == Alphabet::kBytes)
    model.complain(
        invalid_argument("model.type", "model.type is \"Unigram\": with ByteLevel, only BPE is supported"));
  if (!model.ok()) return model.error();
  return ModelOptions{options};
}

}  // namespace

Result<ModelOptions> read_model_options(const TokenizerFile& file, Alphabet alphabet) {
  JsonFields root(file.head, "");
  JsonFields model(root.any("model"), "model");
  if (!model.ok()) return model.error();
  const std::string type = model.text_or("type", file.has_scores ? "Unigram" : "BPE");
  if (!model.ok()) return model.error();
  if (type == "BPE") return read_bpe(file, model, alphabet);
  if (type == "Unigram") return read_unigram(file, model, alphabet);
  return invalid_argument("model.type", "model.type is \"{}\": the types supported are BPE and Unigram",
                          type);
}

Result<Model> Model::build(const TokenizerFile& file, const ModelOptions& options,
                           const Vocabulary& vocabulary) {
  if (const auto* unigram_options = std::get_if<Unigram::Options>(&options.options)) {
    auto unigram = Unigram::build(vocabulary, file.vocab, *unigram_options);
    if (!unigram) return unigram.error();
    return Model(std::move(*unigram));
  }
  auto bpe = Bpe::build(vocabulary, file.merges, std::get<Bpe::Options>(options.options));
  if (!bpe) return bpe.error();
  return Model(std::move(*bpe));
}

}  // namespace lockstep::serving::tokenizing
