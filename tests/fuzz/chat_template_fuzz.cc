// Any bytes as a chat template, rendered with a conversation that has every kind of value. What parses must
// render or fail within its limits; the sanitizers look for the rest.
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/serving/chat_template/chat_template.h"

namespace {

const lockstep::Json& conversation() {
  static const lockstep::Json variables = lockstep::parse_json(R"({
    "messages": [{"role": "system", "content": "Be brief."},
                 {"role": "user", "content": "Größe? 日本 <b>"},
                 {"role": "assistant", "content": null, "tool_calls": [
                   {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, true, null]}}}]},
                 {"role": "tool", "content": "{\"x\": 1}"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "numbers": [3, 1, 2], "n": 7, "f": 2.5, "big": 18446744073709551615
  })")
                                              .value();
  return variables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lockstep::serving::ChatTemplate;
  const auto parsed = ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!parsed) return 0;
  const auto text = parsed->render(conversation(), {.max_steps = 20'000,
                                                    .max_output_bytes = size_t{1} << 20,
                                                    .max_memory_bytes = size_t{4} << 20,
                                                    .now = 1'700'000'000});
  if (text && text->size() > (size_t{1} << 20)) __builtin_trap();
  return 0;
}
