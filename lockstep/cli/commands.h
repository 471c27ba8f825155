#pragma once
// What the command line can ask for, as values: command_line.cc fills them from argv, one source file each
// runs them. Results go to standard output, progress and errors to standard error.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/planning/plan_file.h"
#include "lockstep/planning/suggest.h"
#include "lockstep/runtime/quantize.h"
#include "lockstep/runtime/start.h"
#include "lockstep/serving/request_log.h"

namespace lockstep::cli {

// Exit codes that scripts can use.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;   // it ran and something failed
inline constexpr int kRefused = 2;  // the command line or the configuration is wrong; nothing ran
inline constexpr int kInterrupted = 130;

enum class OutputFormat : uint8_t { kText, kJson };
enum class Thinking : uint8_t { kTemplateDefault, kOn, kOff };

struct SamplingFlags {
  int max_tokens = 512;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

struct ServeCommand {
  runtime::EngineConfig engine;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> cors_origins;
  size_t max_body_bytes = size_t{32} << 20, max_header_bytes = size_t{64} << 10;
  int max_connections = 4096;
  std::string reasoning_parser = "auto", tool_call_parser = "auto";
  double drain_seconds = 30;
  serving::RequestLog request_log = serving::RequestLog::kFailures;
};

struct GenerateCommand {
  runtime::EngineConfig engine;
  SamplingFlags sampling;
  std::optional<std::string> prompt, prompts_file, chat;
  Thinking thinking = Thinking::kTemplateDefault;
  OutputFormat format = OutputFormat::kText;
};

struct ScoreCommand {
  runtime::EngineConfig engine;
  std::vector<int32_t> ids;
  int greedy = 0;  // tokens to continue with
  int top = 1;     // logits of each position
};

struct EvalCommand {
  runtime::EngineConfig engine;
  std::string problems_file;
  int limit = 0;  // 0: all
  int max_tokens = 512;
  Thinking thinking = Thinking::kTemplateDefault;
  OutputFormat format = OutputFormat::kText;
};

// How an endpoint with OpenAI's API answers under load.
struct EndpointBench {
  std::string base_url;  // "http://127.0.0.1:8000/v1"; empty: the engine itself is measured
  std::string model;     // as the endpoint calls it; empty: none is named
  enum class Api : uint8_t { kChat, kCompletions } api = Api::kChat;
  std::string api_key;  // empty: that of OPENAI_API_KEY
  int num_requests = 100;
  bool num_requests_given = false;                          // else a trace goes to its end
  double request_rate = 0;                                  // a second; 0: all at once
  int max_concurrency = 0;                                  // 0: no limit
  std::string input_tokens = "256", output_tokens = "128";  // as parse_lengths() reads them
  int prefix_tokens = 0, num_prefixes = 1;
  std::string trace_file;  // JSON lines, instead of drawn requests
  double trace_speed = 1;
  double temperature = 0;
  bool ignore_eos = false;
  int num_warmup = 0;
  uint64_t seed = 1;
  std::optional<double> slo_ttft_ms, slo_tpot_ms, slo_e2e_ms;
  double timeout_seconds = 300;  // without a byte
  std::string plot_file, records_file;
  OutputFormat format = OutputFormat::kText;
};

// How fast the engine itself is, with random prompts.
struct BenchCommand {
  EndpointBench endpoint;
  runtime::EngineConfig engine;
  std::string config_file;     // a config.json instead of --model
  std::vector<int> batches;    // none: 1, 16 and as many requests as may run at once
  std::optional<int> context;  // tokens of a request at its end; none: 512, or the context length
  std::optional<int> output;   // those of them that are decoded; none: 64, or half of the context
  std::vector<int> prompts;    // tokens of the prompts whose prefill is timed; 0: no prefill; none: 8192, or
                               // what the context length leaves
  int repeats = 3;             // the median counts
  OutputFormat format = OutputFormat::kText;
};

struct PlanCommand {
  runtime::EngineConfig engine;
  std::string machine;    // cpu, h200 or a file; empty: that of the engine's device; for suggestions 8xH200
  std::vector<int> rows;  // of each replica: adds the trace of one step
  planning::Phase phase = planning::Phase::kDecode;
  std::string html_file;  // where to write a page for people; empty: none
  enum class Task : uint8_t { kOne, kSuggest } task = Task::kOne;
  planning::Objective objective = planning::Objective::kThroughput;
  int context = 4096;
  enum class Show : uint8_t { kPlan, kExplained } show = Show::kPlan;
  OutputFormat format = OutputFormat::kText;
};

struct VerifyCommand {
  runtime::EngineConfig engine;
  std::string plan_file;  // a plan as JSON to check, instead of one that the flags name
  int worlds = 0;         // n: every configuration of 1 … n ranks instead of the one that the flags name
  int sample = 0;         // so many more, of up to 512 ranks, drawn from the seed
  uint64_t seed = 1;
  OutputFormat format = OutputFormat::kText;
};

struct QuantizeCommand {
  runtime::QuantizeOptions options;
  OutputFormat format = OutputFormat::kText;
};

struct TokenizeCommand {
  std::string model_directory;
};

struct RenderCommand {
  std::string model_directory;
  std::string template_name;  // of several; empty: the default one
};

struct DoctorCommand {
  runtime::EngineConfig engine;  // model_directory empty: only the machine is looked at
  enum class Task : uint8_t { kLook, kMeasure } task = Task::kLook;
  std::string machine_file;  // that kMeasure writes; empty: none
  OutputFormat format = OutputFormat::kText;
};

using Command =
    std::variant<ServeCommand, GenerateCommand, ScoreCommand, EvalCommand, BenchCommand, PlanCommand,
                 VerifyCommand, QuantizeCommand, TokenizeCommand, RenderCommand, DoctorCommand>;

// Of a command that starts an engine in several processes: the others than the first run no command, only
// ranks. None where this process is to run the command.
std::optional<int> run_as_worker(const Command& command);

int run(const ServeCommand& command);
int run(const GenerateCommand& command);
int run(const ScoreCommand& command);
int run(const EvalCommand& command);
int run(const BenchCommand& command);
int run(const EndpointBench& bench);
int run(const PlanCommand& command);
int run(const VerifyCommand& command);
int run(const QuantizeCommand& command);
int run(const TokenizeCommand& command);
int run(const RenderCommand& command);
int run(const DoctorCommand& command);

}  // namespace lockstep::cli
