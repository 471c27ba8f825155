#include "lockstep/serving/chat_template/chat_template.h"

#include <utility>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/interpreter.h"
#include "lockstep/serving/chat_template/json_values.h"
#include "lockstep/serving/chat_template/parser.h"
#include "lockstep/serving/chat_template/scopes.h"
#include "lockstep/serving/chat_template/unicode.h"

namespace lockstep::serving {
namespace {

// Published templates are below 100 KB.
constexpr size_t kMaxSourceBytes = size_t{512} << 10;

Error to_error(const jinja::Failure& failure) {
  if (failure.cause == jinja::Failure::Cause::kRaised)
    return {ErrorCode::kInvalidArgument, failure.message, "messages"};
  const std::string where =
      failure.line > 0 ? fmt::format("chat template, line {}", failure.line) : "chat template";
  return invalid_argument("chat_template", "{}: {}", where, failure.message);
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  jinja::Program program;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const { return impl_->source; }

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  if (source.size() > kMaxSourceBytes)
    return invalid_argument("chat_template", "a chat template of {} bytes is larger than the limit of {}",
                            source.size(), kMaxSourceBytes);
  if (!jinja::is_valid_utf8(source))
    return invalid_argument("chat_template", "the chat template ({} bytes) is not UTF-8", source.size());
  try {
    auto impl = std::make_unique<Impl>();
    impl->program = jinja::Parser(jinja::tokenize(source)).parse();
    jinja::resolve_names(impl->program);
    impl->source = std::move(source);
    return ChatTemplate(std::move(impl));
  } catch (const jinja::Failure& failure) {
    return to_error(failure);
  }
}

Result<std::string> ChatTemplate::render(const Json& variables, const RenderLimits& limits) const {
  if (!variables.is_object())
    return invalid_argument("variables", "the variables of a chat template must be an object, not {}",
                            variables.type_name());
  try {
    jinja::Heap heap(limits);
    const jinja::Value values = jinja::from_json(heap, variables);
    return jinja::Interpreter(heap, impl_->program, values).run();
  } catch (const jinja::Failure& failure) {
    return to_error(failure);
  }
}

}  // namespace lockstep::serving
