// lockstep eval: problems with an integer answer, asked through the chat template; the last integer of the
// reply counts.
#include <chrono>
#include <cstdio>
#include <sstream>

#include "lockstep/base/file.h"
#include "lockstep/cli/conversation.h"
#include "lockstep/cli/last_integer.h"
#include "lockstep/cli/report.h"

namespace lockstep::cli {
namespace {

struct Problem {
  std::string question;
  int64_t answer = 0;
};

Result<std::vector<Problem>> read_problems(const EvalCommand& command) {
  const auto text = read_file(command.problems_file);
  if (!text) return text.error();
  std::vector<Problem> problems;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (command.limit > 0 && static_cast<int>(problems.size()) == command.limit) break;
    const auto json = parse_json(line);
    if (!json) return invalid_argument("--problems", "--problems line {}: {}", number, json.error().message);
    const auto question = json->find("question"), answer = json->find("answer");
    if (!json->is_object() || question == json->end() || !question->is_string() || answer == json->end() ||
        !answer->is_number_integer())
      return invalid_argument(
          "--problems", "--problems line {}: it needs \"question\" (a string) and \"answer\" (an integer)",
          number);
    problems.push_back({question->get<std::string>(), answer->get<int64_t>()});
  }
  if (problems.empty())
    return invalid_argument("--problems", "--problems {} holds no problem", command.problems_file);
  return problems;
}

struct Outcome {
  int right = 0, unfinished = 0, failed = 0;
  int64_t output_tokens = 0;
  Json wrong = Json::array();
};

Outcome grade(const std::vector<Problem>& problems, const BatchResult& result,
              const serving::ChatModel& model, const std::vector<Prompt>& prompts) {
  Outcome outcome;
  for (size_t i = 0; i < problems.size(); ++i) {
    Reply reply(model, prompts[i].reply);
    for (const runtime::OutputToken& token : result.answers[i].tokens) reply.push(token.token_id);
    reply.finish();
    const auto found = last_integer(reply.content());
    outcome.output_tokens += static_cast<int64_t>(result.answers[i].tokens.size());
    outcome.failed += result.answers[i].finish == runtime::FinishReason::kError ? 1 : 0;
    outcome.unfinished += result.answers[i].finish == runtime::FinishReason::kLength ? 1 : 0;
    if (found && *found == problems[i].answer) {
      ++outcome.right;
    } else {
      outcome.wrong.push_back({{"question", problems[i].question},
                               {"answer", problems[i].answer},
                               {"reply", reply.content()},
                               {"reasoning_content", reply.reasoning()},
                               {"error", result.answers[i].error}});
    }
  }
  return outcome;
}

void print(const Outcome& outcome, size_t total, double seconds, const runtime::EngineStats& stats,
           OutputFormat format) {
  const bool drafts = stats.verifying_steps > 0;
  if (format == OutputFormat::kJson) {
    Json json = Json{{"right", outcome.right},
                     {"total", total},
                     {"accuracy", static_cast<double>(outcome.right) / static_cast<double>(total)},
                     {"unfinished", outcome.unfinished},
                     {"failed", outcome.failed},
                     {"output_tokens", outcome.output_tokens},
                     {"seconds", seconds},
                     {"wrong", outcome.wrong}};
    if (drafts) json["speculation"] = speculation_json(stats);
    fmt::print("{}\n", to_text(json));
    return;
  }
  fmt::print("{} of {} right ({:.1f} %), {} unfinished, {} failed; {} tokens in {:.1f} s\n", outcome.right,
             total, 100.0 * outcome.right / static_cast<double>(total), outcome.unfinished, outcome.failed,
             outcome.output_tokens, seconds);
  if (drafts)
    fmt::print("{} of {} drafts accepted, {:.2f} tokens a step\n", stats.accepted_tokens,
               stats.drafted_tokens, runtime::accept_length(stats));
}

}  // namespace

int run(const EvalCommand& command) {
  const auto problems = read_problems(command);
  if (!problems) return report(problems.error());
  const auto model = serving::ChatModel::load(command.engine.model_directory);
  if (!model) return report(model.error());
  runtime::EngineConfig config = command.engine;
  config.num_valid_tokens = model->tokenizer().size();
  auto engine = runtime::start_engine(config, progress_lines());
  if (!engine) return report(engine.error());

  std::vector<Prompt> prompts;
  std::vector<runtime::Request> requests;
  for (const Problem& problem : *problems) {
    auto prompt = chat_prompt(*model, user_message(problem.question), Json(), command.thinking);
    if (!prompt) return report(prompt.error());
    requests.push_back(make_request(*prompt, {.max_tokens = command.max_tokens}, (*engine)->model()));
    prompts.push_back(*std::move(prompt));
  }
  const auto start = std::chrono::steady_clock::now();
  const BatchResult result = run_batch(**engine, std::move(requests), "eval");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (result.interrupted) return kInterrupted;
  const Outcome outcome = grade(*problems, result, *model, prompts);
  print(outcome, problems->size(), took.count(), (*engine)->stats(), command.format);
  return outcome.failed > 0 ? kFailed : kOk;
}

}  // namespace lockstep::cli
