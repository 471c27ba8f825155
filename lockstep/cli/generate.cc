// lockstep generate: one prompt, one chat message, or a file of either.
#include <cstdio>
#include <sstream>

#include "lockstep/base/file.h"
#include "lockstep/base/log.h"
#include "lockstep/cli/conversation.h"
#include "lockstep/cli/report.h"
#include "lockstep/serving/openai/messages.h"
#include "lockstep/serving/openai/tools.h"

namespace lockstep::cli {
namespace {

Result<Prompt> read_line(const serving::ChatModel& model, const std::string& line, int number,
                         Thinking thinking) {
  const auto refuse = [&](std::string_view why) {
    return invalid_argument("--prompts", "--prompts line {}: {}", number, why);
  };
  const auto json = parse_json(line);
  if (!json) return refuse(json.error().message);
  if (json->is_object() && json->contains("prompt") && (*json)["prompt"].is_string())
    return text_prompt(model, (*json)["prompt"].get<std::string>());
  if (!json->is_object() || !json->contains("messages"))
    return refuse("neither \"prompt\" (a string) nor \"messages\"");
  // The same form as over HTTP, so that a message which the template would choke on is named here.
  const auto messages = serving::openai::read_messages((*json)["messages"]);
  if (!messages) return refuse(messages.error().message);
  serving::openai::Fields fields(*json);
  const serving::openai::ToolOptions tools = serving::openai::read_tools(fields);
  if (!fields.ok()) return refuse(fields.status().error().message);
  auto prompt = chat_prompt(model, *messages, tools.tools, thinking);
  if (!prompt) return refuse(prompt.error().message);
  return prompt;
}

Result<std::vector<Prompt>> read_prompts(const serving::ChatModel& model, const GenerateCommand& command) {
  if (command.prompt) return std::vector<Prompt>{text_prompt(model, *command.prompt)};
  if (command.chat) {
    auto prompt = chat_prompt(model, user_message(*command.chat), Json(), command.thinking);
    if (!prompt) return prompt.error();
    return std::vector<Prompt>{*std::move(prompt)};
  }
  const auto text = read_file(*command.prompts_file);
  if (!text) return text.error();
  std::vector<Prompt> prompts;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto prompt = read_line(model, line, number, command.thinking);
    if (!prompt) return prompt.error();
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty())
    return invalid_argument("--prompts", "--prompts {} holds no line", *command.prompts_file);
  return prompts;
}

// A single answer in text form is printed as it comes: content on standard output, reasoning on standard
// error.
void print_live(const serving::Deltas& deltas) {
  for (const serving::Delta& delta : deltas) {
    const std::string& text = delta.text.text();
    switch (delta.kind) {
      case serving::DeltaKind::kReasoning:
        fmt::print(stderr, "{}", text);
        break;
      case serving::DeltaKind::kContent:
        fmt::print("{}", text);
        break;
      case serving::DeltaKind::kCallBegin:
        fmt::print("{}(", text);
        break;
      case serving::DeltaKind::kCallArguments:
        fmt::print("{}", text);
        break;
      case serving::DeltaKind::kCallEnd:
        fmt::print(")\n");
        break;
    }
  }
  std::fflush(stdout);
}

int finish(const BatchResult& result, std::vector<Reply>& replies, const std::vector<Prompt>& prompts,
           bool live) {
  bool failed = false, nothing_ran = true;
  for (size_t i = 0; i < replies.size(); ++i) {
    const serving::Deltas last = replies[i].finish();
    if (live) {
      print_live(last);
      fmt::print("\n");
    } else {
      fmt::print("{}\n", to_text(to_json(replies[i], result.answers[i], prompts[i].ids.size())));
    }
    const Answer& answer = result.answers[i];
    const bool refused =
        answer.finish == runtime::FinishReason::kError && answer.error_code == ErrorCode::kInvalidArgument;
    nothing_ran = nothing_ran && refused;
    if (answer.finish != runtime::FinishReason::kError) continue;
    failed = true;
    fmt::print(stderr, "lockstep: prompt {}: {}\n", i + 1, answer.error);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "lockstep: the answers could not be written to standard output\n");
    return kFailed;
  }
  if (result.interrupted) return kInterrupted;
  if (nothing_ran) return kRefused;
  return failed ? kFailed : kOk;
}

}  // namespace

int run(const GenerateCommand& command) {
  if (const Status flags = check_flags(command.sampling); !flags) return report(flags.error());
  const auto model = serving::ChatModel::load(command.engine.model_directory);
  if (!model) return report(model.error());
  auto prompts = read_prompts(*model, command);
  if (!prompts) return report(prompts.error());
  runtime::EngineConfig config = command.engine;
  config.num_valid_tokens = model->tokenizer().size();
  auto engine = runtime::start_engine(config, progress_lines());
  if (!engine) return report(engine.error());

  const bool live = !command.prompts_file && command.format == OutputFormat::kText;
  std::vector<Reply> replies;
  std::vector<runtime::Request> requests;
  for (const Prompt& prompt : *prompts) {
    serving::ReplyOptions options = prompt.reply;
    options.stop = command.sampling.stop;
    replies.emplace_back(*model, std::move(options));
    requests.push_back(make_request(prompt, command.sampling, (*engine)->model()));
  }
  const BatchResult result =
      run_batch(**engine, std::move(requests), "generate", [&](size_t at, const runtime::OutputToken& token) {
        const serving::Deltas deltas = replies[at].push(token.token_id);
        if (live) print_live(deltas);
        return !replies[at].ended();
      });
  if (const runtime::EngineStats stats = (*engine)->stats(); stats.verifying_steps > 0)
    log_info("{} of {} drafts accepted, {:.2f} tokens a step", stats.accepted_tokens, stats.drafted_tokens,
             runtime::accept_length(stats));
  return finish(result, replies, *prompts, live);
}

}  // namespace lockstep::cli
