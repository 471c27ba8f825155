#pragma once
// The recorded references of tests/golden: a checkpoint, prompts, and what float32 gave for them.
#include <string>
#include <vector>

#include "tests/equivalence/run_requests.h"

namespace lockstep::test {

struct Golden {
  std::string model, file;
};

inline Golden golden(const std::string& name) {
  return {"tests/golden/" + name, "tests/golden/" + name + "/golden.json"};
}

struct Example {
  std::vector<int32_t> input_ids, greedy_ids;
  std::vector<std::vector<int32_t>> top_ids;  // [positions][n]
  std::vector<std::vector<double>> top_logits;
  std::vector<double> last_logits;
};

inline std::vector<Example> read_examples(const Golden& golden) {
  std::vector<Example> examples;
  for (const Json& entry : read_json_file(golden.file)) {
    Example example{.input_ids = entry.at("input_ids"),
                    .greedy_ids = entry.at("greedy_ids"),
                    .last_logits = entry.at("last_logits")};
    if (entry.contains("top_ids")) {
      example.top_ids = entry.at("top_ids");
      example.top_logits = entry.at("top_logits");
    } else {
      for (const Json& id : entry.at("argmax_ids")) example.top_ids.push_back({id.get<int32_t>()});
      for (const Json& logit : entry.at("argmax_logits")) example.top_logits.push_back({logit.get<double>()});
    }
    examples.push_back(std::move(example));
  }
  return examples;
}

}  // namespace lockstep::test
