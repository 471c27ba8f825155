// lockstep score: the logits of a sequence of ids, as one JSON object on standard output.
#include <cstdio>

#include "lockstep/cli/batch.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"

namespace lockstep::cli {
namespace {

Json to_json(const Answer& answer, int top) {
  const runtime::PromptScores& scores = *answer.scores;
  Json argmax_ids = Json::array(), argmax_logits = Json::array(), greedy = Json::array();
  for (const auto& ids : scores.top_ids) argmax_ids.push_back(ids.front());
  for (const auto& logits : scores.top_logits) argmax_logits.push_back(logits.front());
  for (const runtime::OutputToken& token : answer.tokens) greedy.push_back(token.token_id);
  Json result = {{"argmax_ids", std::move(argmax_ids)},
                 {"argmax_logits", std::move(argmax_logits)},
                 {"last_logits", scores.last_logits},
                 {"greedy_ids", std::move(greedy)}};
  if (top > 1) {
    result["top_ids"] = scores.top_ids;
    result["top_logits"] = scores.top_logits;
  }
  return result;
}

}  // namespace

int run(const ScoreCommand& command) {
  auto engine = runtime::start_engine(command.engine, progress_lines());
  if (!engine) return report(engine.error());
  runtime::Request request{.prompt = command.ids,
                           .sampling = {.temperature = 0},
                           .max_new_tokens = command.greedy,
                           .ignore_eos = true,
                           .prompt_top_logits = command.top};
  const BatchResult result = run_batch(**engine, {request}, "scoring");
  if (result.interrupted) return kInterrupted;
  const Answer& answer = result.answers.front();
  if (answer.finish == runtime::FinishReason::kError)
    return report({answer.error_code, answer.error, "--ids"});
  fmt::print("{}\n", to_text(to_json(answer, command.top)));
  return kOk;
}

}  // namespace lockstep::cli
