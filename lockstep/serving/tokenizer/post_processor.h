#pragma once
// The "post_processor" of tokenizer.json: which ids belong before and after a text that is a whole prompt.
// Nothing here adds them: a rendered chat template already holds them.
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::tokenizing {

struct PromptFrame {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

// null, ByteLevel, TemplateProcessing (its "single"), or a Sequence of these. Ids must be below `num_ids`.
Result<PromptFrame> read_post_processor(const Json& value, int num_ids, const std::string& path);

}  // namespace lockstep::serving::tokenizing
