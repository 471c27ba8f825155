// What a constraint costs a token: the mask before it and taking it, along a JSON text of a schema. With the
// vocabulary of a trained checkpoint of the tree, and of published ones where LOCKSTEP_TOKENIZER_ARCHIVE
// names a folder of them.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/constraints/grammar_compiler.h"
#include "lockstep/serving/constraints/schema_check.h"
#include "lockstep/serving/tokenizer/decoder.h"
#include "tests/source_dir.h"

namespace {

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::serving;
using namespace lockstep::serving::constraints;

constexpr const char* kSchema =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},)"
    R"("tags":{"type":"array","items":{"type":"string"}},"address":{"type":"object","properties":{"city":{"type":"string"},)"
    R"("zip":{"type":"string","pattern":"[0-9]{5}"}},"required":["city","zip"],"additionalProperties":false},)"
    R"("note":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["name","age","tags","address","note"],)"
    R"("additionalProperties":false})";
constexpr const char* kText =
    R"({"name": "Ada Lovelace", "age": 36, "tags": ["mathematics", "first programmer", "poetical science"], )"
    R"("address": {"city": "London", "zip": "12345"}, "note": "She wrote the first algorithm meant for a machine."})";

void along_a_text(benchmark::State& state, const Tokenizer& tokenizer) {
  const auto ids = tokenizer.encode(kText, AddedTokens::kAsText);
  runtime::ModelInfo info;
  info.vocab = tokenizer.size();
  info.eos_token_ids = {tokenizer.size() - 1};
  const GrammarCompiler compiler(tokenizer, info, {});
  const auto schema = enforceable_schema(parse_json(kSchema).value(), "schema").value();
  const auto form = compiler.compile({OutputForm::Kind::kJsonSchema, to_text(schema), "schema"});
  if (!form) return state.SkipWithError(form.error().message.c_str());
  std::vector<uint32_t> words(static_cast<size_t>(info.vocab + 31) / 32);
  for (auto _ : state) {
    const auto constraint = form->start({});
    for (const int32_t id : ids) {
      constraint->allow(words);
      if (!constraint->accept(id)) return state.SkipWithError("a token of the text is not allowed");
    }
  }
  const auto num_tokens = static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(ids.size());
  state.SetItemsProcessed(num_tokens);
  state.counters["us_per_token"] = benchmark::Counter(
      static_cast<double>(num_tokens) * 1e-6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["vocab"] = info.vocab;
}

void add(const fs::path& folder) {
  auto loaded = Tokenizer::load(folder);
  // Where a text's first token has a space of its own, a form cannot begin with that token.
  if (!loaded || loaded->decode_rule().num_stripped > 0) return;
  const auto tokenizer = std::make_shared<Tokenizer>(std::move(*loaded));
  benchmark::RegisterBenchmark(("constrained/" + folder.filename().string()).c_str(),
                               [tokenizer](benchmark::State& state) { along_a_text(state, *tokenizer); });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  add(fs::path(LOCKSTEP_SOURCE_DIR) / "models/tutor-qwen3.5-moe");
  if (const char* const archive = std::getenv("LOCKSTEP_TOKENIZER_ARCHIVE"))
    for (const auto& entry : fs::directory_iterator(archive)) add(entry.path());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
