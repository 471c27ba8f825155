// Text to ids on one core, in bytes a second: the trained checkpoints of the tree, and published tokenizers
// where LOCKSTEP_TOKENIZER_ARCHIVE names a folder of them. The text is the tree's own prose and code, and the
// recorded texts of many scripts.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/tokenizer.h"
#include "tests/source_dir.h"

namespace {

namespace fs = std::filesystem;
using lockstep::Json;
using lockstep::serving::AddedTokens;
using lockstep::serving::Tokenizer;

void append_files(const fs::path& folder, std::string_view extension, std::string& text) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths)
    if (const auto content = lockstep::read_file(path)) text += *content;
}

fs::path root() { return LOCKSTEP_SOURCE_DIR; }

std::string english() {
  std::string text;
  append_files(root() / "docs", ".md", text);
  append_files(root() / "lockstep", ".md", text);
  return text + lockstep::read_file(root() / "LICENSE").value();
}

std::string code() {
  std::string text;
  append_files(root() / "lockstep" / "serving", ".cc", text);
  return text;
}

std::string many_scripts() {
  std::string text;
  const auto lines = lockstep::read_file(root() / "tests/serving/data/tokenizer/tutor-deepseek-v3.jsonl");
  if (!lines) return text;
  for (size_t begin = 0; begin < lines->size();) {
    const size_t end = lines->find('\n', begin);
    if (const auto line = lockstep::parse_json(lines->substr(begin, end - begin)))
      text += (*line)["text"].get<std::string>() + " ";
    begin = end + 1;
  }
  return text;
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  size_t num_ids = 0;
  for (auto _ : state) {
    const auto ids = tokenizer.encode(text, AddedTokens::kParse);
    benchmark::DoNotOptimize(ids.data());
    num_ids = ids.size();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(text.size()));
  state.counters["bytes_per_id"] = static_cast<double>(text.size()) / static_cast<double>(num_ids);
}

void add(const fs::path& folder) {
  auto loaded = Tokenizer::load(folder);
  if (!loaded) return;
  const auto tokenizer = std::make_shared<Tokenizer>(std::move(*loaded));
  for (const auto& [name, text] : {std::pair("english", english()), std::pair("code", code()),
                                   std::pair("many_scripts", many_scripts())})
    benchmark::RegisterBenchmark(
        ("encode/" + folder.filename().string() + "/" + name).c_str(),
        [tokenizer, text = text](benchmark::State& state) { encode(state, *tokenizer, text); });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const char* name : {"tutor-deepseek-v3", "tutor-qwen3.5-moe"}) add(root() / "models" / name);
  if (const char* const archive = std::getenv("LOCKSTEP_TOKENIZER_ARCHIVE"))
    for (const auto& entry : fs::directory_iterator(archive)) add(entry.path());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
