// lockstep tokenize: texts to ids and back, as the model's tokenizer does it.
#include <utility>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/json_lines.h"
#include "lockstep/cli/report.h"
#include "lockstep/serving/tokenizer/tokenizer.h"

namespace lockstep::cli {
namespace {

Result<Json> tokenize(const serving::Tokenizer& tokenizer, const Json& line) {
  const auto text = line.find("text");
  if (text == line.end() || !text->is_string())
    return invalid_argument("text", "\"text\" is {}: it must be text",
                            text == line.end() ? "missing" : text->type_name());
  const auto ids = tokenizer.encode(text->get_ref<const std::string&>(), serving::AddedTokens::kParse);
  return Json{{"ids", ids}, {"decoded", tokenizer.decode(ids, serving::SpecialTokens::kKeep)}};
}

}  // namespace

int run(const TokenizeCommand& command) {
  const auto tokenizer = serving::Tokenizer::load(command.model_directory);
  if (!tokenizer) return report(tokenizer.error());
  return answer_lines(stdin, stdout, [&](const Json& line) { return tokenize(*tokenizer, line); });
}

}  // namespace lockstep::cli
