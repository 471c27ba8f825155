#pragma once
// The front door of chat templates: a Jinja template, as model folders ship it, turned into a prompt the way
// Hugging Face's apply_chat_template would (Jinja2's immutable sandbox with trim_blocks, lstrip_blocks and
// loop controls). Knows no tokens and no requests. A template is hostile text: parsing and rendering are
// bounded in time, depth and memory.
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving {

struct RenderLimits {
  uint64_t max_steps = 10'000'000;             // evaluations, and one more for each 64 bytes that are handled
  int max_depth = 1000;                        // of evaluation: nested calls, blocks and expressions
  size_t max_output_bytes = size_t{16} << 20;  // of the rendered text
  size_t max_memory_bytes = size_t{128} << 20;  // alive at once in values and captured text
  std::time_t now = 0;                          // what strftime_now() prints, in local time
};

// Parsed once, immutable; render() may be called from many threads at once.
class ChatTemplate {
 public:
  // Refuses, with the line: what is not Jinja, and by name what Jinja has but chat templates do not (include,
  // extends, filters that need a browser or a random number).
  static Result<ChatTemplate> parse(std::string source);

  // The template of a model folder: chat_template.jinja, else "chat_template" in tokenizer_config.json, else
  // in chat_template.json. Where it is a list of named templates `name` picks one ("default" when empty); a
  // name is also looked for in additional_chat_templates/<name>.jinja. kNotFound when there is none.
  static Result<ChatTemplate> load(const std::filesystem::path& directory, std::string_view name = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `variables` is an object (messages, tools, add_generation_prompt, bos_token, ...); a key that is absent
  // is undefined. An error of raise_exception() holds the template's own message; any other error names the
  // line.
  Result<std::string> render(const Json& variables, const RenderLimits& limits = {}) const;

  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace lockstep::serving
