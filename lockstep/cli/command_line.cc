#include "lockstep/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "lockstep/cli/choice_flags.h"
#include "lockstep/cli/draft_flags.h"
#include "lockstep/cli/endpoint_flags.h"
#include "lockstep/cli/foreign_flags.h"
#include "lockstep/cli/hosts_flags.h"
#include "lockstep/cli/planning_flags.h"
#include "lockstep/serving/reasoning/reasoning_splitter.h"
#include "lockstep/serving/request_log.h"
#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::cli {
namespace {

constexpr const char* kParallel = "Parallelism";
constexpr const char* kCapacity = "Capacity";
constexpr const char* kSampling = "Sampling";
constexpr const char* kFaults = "Faults";

// CLI11's own range lets NaN through.
CLI::Validator seconds_from(double least) {
  static constexpr double kDay = 86400;
  return CLI::Validator(
      [least](const std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool good = end != text.c_str() && *end == '\0' && value >= least && value <= kDay;
        return good ? std::string() : fmt::format("{} is not between {} and {} seconds", text, least, kDay);
      },
      fmt::format("SECONDS from {}", least));
}

// "auto", or one of these.
CLI::Validator one_of(const std::vector<std::string_view>& names) {
  std::vector<std::string> choices = {"auto"};
  choices.insert(choices.end(), names.begin(), names.end());
  return CLI::IsMember(choices);
}

// CLI11 alone takes the largest number for one that is larger.
CLI::Validator whole_64_bits() {
  return CLI::Validator(
      [](const std::string& text) {
        uint64_t value = 0;
        const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
        return good ? std::string() : fmt::format("{} is not a whole number from 0 to 2^64 - 1", text);
      },
      "UINT64");
}

void add_parallel_flags(CLI::App& app, planning::ParallelFlags& flags) {
  app.add_option("--tp-size,--tp,--tensor-parallel-size", flags.tp_size, "Ranks")->group(kParallel);
  app.add_option("--dp-size,--dp,--data-parallel-size", flags.dp_size,
                 "Attention replicas inside --tp-size; needs --enable-dp-attention")
      ->group(kParallel);
  app.add_flag("--enable-dp-attention", flags.enable_dp_attention,
               "Each attention replica keeps its own requests")
      ->group(kParallel);
  app.add_option("--ep-size,--ep,--expert-parallel-size", flags.ep_size,
                 "Expert-parallel width; experts are split over the rest")
      ->group(kParallel);
  app.add_option("--moe-dense-tp-size", flags.moe_dense_tp_size,
                 "Width of dense FFN layers: any divisor of --tp-size")
      ->group(kParallel);
  app.add_option(
         "--moe-a2a-backend", flags.moe_a2a_backend,
         "How rows reach experts: none (gather and reduce), or dispatch and combine: in_process (as many "
         "slots as rows), in_process_expert_major, in_process_token_major (as many as could come)")
      ->group(kParallel);
  app.add_flag("--enable-dp-lm-head", flags.enable_dp_lm_head,
               "Split the vocabulary over a replica's ranks instead of all")
      ->group(kParallel);
  app.add_option("--attn-cp-size", flags.attn_cp_size,
                 "Ranks of a replica that share out its rows; heads are split over the others")
      ->group(kParallel);
  app.add_option(
         "--cp-strategy", flags.cp_strategy,
         "How --attn-cp-size shares out a prompt: zigzag (default: to each rank an early run of rows and "
         "a late one) or contiguous")
      ->group(kParallel);
  app.add_option("--moe-dp-size", flags.moe_dp_size,
                 "Copies of the experts, each for the rows of its own ranks")
      ->group(kParallel);
  app.add_option("--lm-head-tp-size", flags.lm_head_tp_size,
                 "Over how many ranks the LM head's vocabulary is split: any divisor of --tp-size")
      ->group(kParallel);
  app.add_option("--embedding-tp-size", flags.embedding_tp_size,
                 "Over how many ranks the embedding's vocabulary is split: any divisor of --tp-size")
      ->group(kParallel);
  app.add_option("--shared-experts", flags.shared_experts, "split over those who owe their sum, or whole")
      ->group(kParallel);
  add_draft_flags(app, flags, kParallel);
  app.add_option("--pp-size,--pipeline-parallel-size", flags.pp_size, "Stages: 1 only")->group(kParallel);
  app.add_option("--skip-pass,--disable-pass", flags.skip_passes, "Leave out a pass over the plan, by name")
      ->group(kParallel);
  app.add_option("--max-running-requests", flags.max_running_requests,
                 "Requests of the whole engine that run at once")
      ->group(kCapacity);
  app.add_option("--chunked-prefill-size", flags.chunked_prefill_size, "Prompt rows a replica and step")
      ->group(kCapacity);
}

Choices<QuantFormat> quant_formats() {
  return {{"fp8", QuantFormat::kFp8},
          {"nvfp4", QuantFormat::kNvfp4},
          {"mxfp4", QuantFormat::kMxfp4},
          {"int8", QuantFormat::kInt8},
          {"int4", QuantFormat::kInt4}};
}

enum class ModelFlag : uint8_t { kRequired, kOptional };

void add_engine_flags(CLI::App& app, runtime::EngineConfig& config, ModelFlag model) {
  app.add_option("--model,--model-path,-m", config.model_directory, "Folder of the checkpoint")
      ->required(model == ModelFlag::kRequired);
  add_parallel_flags(app, config.parallel);
  app.add_option("--context-length", config.context_length,
                 "Tokens of prompt and output; at most the model's")
      ->group(kCapacity);
  app.add_option("--max-total-tokens", config.max_total_tokens, "Cached tokens of one replica")
      ->group(kCapacity);
  app.add_option("--mem-fraction-static", config.mem_fraction_static,
                 "Share of the memory that all caches may take")
      ->capture_default_str()
      ->group(kCapacity);
  app.add_option("--page-size", config.page_size, "Tokens of a cache page")
      ->capture_default_str()
      ->group(kCapacity);
  app.add_option("--max-queued-requests", config.max_queued_requests,
                 "Requests that may wait; more are refused")
      ->capture_default_str()
      ->group(kCapacity);
  app.add_flag_function(
         "--disable-overlap-schedule", [&config](int64_t) { config.overlap = runtime::Overlap::kOff; },
         "Deliver a step's tokens and take in requests before the next step, not while it is computed")
      ->group(kCapacity);
  app.add_flag_function(
         "--disable-radix-cache", [&config](int64_t) { config.prefix_cache = runtime::PrefixCache::kOff; },
         "Compute every prompt whole, also where its beginning is in the cache")
      ->group(kCapacity);
  app.add_option("--max-mamba-cache-size", config.max_mamba_cache_size,
                 "Recurrent states of a replica: one for each running request, the rest for copies")
      ->group(kCapacity);
  app.add_option("--queue-timeout", config.queue_timeout_seconds,
                 "Seconds that a request may wait for its start; then it is refused with 503")
      ->check(seconds_from(0.001))
      ->group(kCapacity);
  add_choice(
      app, "--kv-cache-dtype", config.cache_type, "Numbers in the cache",
      Choices<runtime::CacheType>{{"f32", runtime::CacheType::kF32}, {"bf16", runtime::CacheType::kBF16}})
      ->default_str("f32")
      ->group(kCapacity);
  add_choice(app, "--device", config.device, "Where ranks compute",
             Choices<runtime::Device>{{"cpu", runtime::Device::kCpu}, {"cuda", runtime::Device::kCuda}})
      ->default_str("cpu")
      ->group(kCapacity);
  app.add_option("--threads", config.threads,
                 "Threads that compute each rank's ops on the CPU; default: its share of the cores")
      ->check(CLI::Range(1, runtime::kMostCpuThreads))
      ->group(kCapacity);
  app.add_option(
         "--instruction-set", config.instruction_set,
         "What the CPU's kernels use: avx512, avx2, sse4, neon or portable; default: the widest there is")
      ->group(kCapacity);
  app.add_flag_function(
         "--disable-cuda-graph", [&config](int64_t) { config.steps = runtime::Steps::kLaunched; },
         "Launch every kernel of every step, also where a recorded step could be replayed")
      ->group(kCapacity);
  add_choice(app, "--product-inputs", config.product_inputs,
             "What a GPU's products with bf16 weights make of their inputs: bf16, or whole (exact, slower)",
             Choices<runtime::ProductInputs>{{"bf16", runtime::ProductInputs::kRounded},
                                             {"whole", runtime::ProductInputs::kWhole}})
      ->default_str("bf16")
      ->group(kCapacity);
  add_choice(app, "--quantization", config.quantization, "Quantize plain weights while they are read",
             quant_formats())
      ->group(kCapacity);
  app.add_option("--collective-timeout", config.deadline_seconds,
                 "Seconds that a rank waits for others before the engine gives up")
      ->capture_default_str()
      ->check(seconds_from(0.001))
      ->group(kCapacity);
}

void add_trace_flags(CLI::App& app, runtime::EngineConfig& config) {
  app.add_option(
      "--trace", config.trace_file,
      "Write the first steps to this file, for Perfetto or chrome://tracing: phases of the engine, "
      "and on every rank each stage and each step of an edge");
  app.add_option("--trace-steps", config.trace_steps, "How many steps --trace writes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
}

void add_fault_flags(CLI::App& app, runtime::FaultPolicy& faults) {
  app.add_option_function<double>(
         "--step-timeout,--watchdog-timeout",
         [&faults](double given) {
           faults.step_timeout = std::chrono::milliseconds(static_cast<int64_t>(given * 1000));
         },
         "A step that takes longer fails the engine, which then starts again")
      ->default_str("300")
      ->check(seconds_from(0.01))
      ->group(kFaults);
  app.add_option("--max-engine-restarts", faults.max_restarts,
                 "How often a failed engine is started again within ten minutes; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000))
      ->group(kFaults);
  app.add_option("--max-request-failures", faults.max_request_failures,
                 "A request that was running in so many failures of the engine is refused; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000))
      ->group(kFaults);
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  app.add_option("--max-tokens,-n", flags.max_tokens, "Tokens to generate at most")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24))
      ->group(kSampling);
  app.add_option("--temperature,-t", flags.temperature, "0 is greedy; default: the model's")
      ->group(kSampling);
  app.add_option("--top-k", flags.top_k, "Keep the k most likely tokens")->group(kSampling);
  app.add_option("--top-p", flags.top_p, "Keep the smallest set that reaches this probability")
      ->group(kSampling);
  app.add_option("--min-p", flags.min_p, "Keep tokens at least this likely, relative to the most likely")
      ->group(kSampling);
  app.add_option("--repetition-penalty", flags.repetition_penalty,
                 "Above 1 discourages tokens that were seen")
      ->group(kSampling);
  app.add_option("--presence-penalty", flags.presence_penalty, "Subtracted once for a token of the output")
      ->group(kSampling);
  app.add_option("--frequency-penalty", flags.frequency_penalty,
                 "Subtracted for each time a token is in the output")
      ->group(kSampling);
  app.add_option("--seed", flags.seed, "Draws are a function of seed and position")
      ->check(whole_64_bits())
      ->group(kSampling);
  app.add_option("--stop", flags.stop, "Text that ends the answer; may be given several times")
      ->group(kSampling);
  app.add_flag("--ignore-eos", flags.ignore_eos, "Go on after the end-of-sequence token")->group(kSampling);
}

void add_thinking(CLI::App& app, Thinking& thinking) {
  add_choice(app, "--thinking", thinking, "Default: what the chat template does",
             Choices<Thinking>{{"on", Thinking::kOn}, {"off", Thinking::kOff}});
}

// One subcommand: its flags fill a T.
template <class T>
struct Subcommand {
  CLI::App* app = nullptr;
  T values;
};

struct CommandLine {
  CLI::App app{"Lockstep serves mixture-of-experts models on many ranks that cannot disagree.", "lockstep"};
  std::string log_level = "info", log_format = "text";
  Subcommand<ServeCommand> serve;
  Subcommand<GenerateCommand> generate;
  Subcommand<ScoreCommand> score;
  Subcommand<EvalCommand> eval;
  Subcommand<BenchCommand> bench;
  Subcommand<PlanCommand> plan;
  Subcommand<VerifyCommand> verify;
  Subcommand<QuantizeCommand> quantize;
  Subcommand<TokenizeCommand> tokenize;
  Subcommand<RenderCommand> render;
  Subcommand<DoctorCommand> doctor;

  CommandLine() {
    app.require_subcommand(1);
    app.set_version_flag("--version", "lockstep 0.1.0");
    app.add_option("--log-level", log_level, "debug, info, warning, error or off")
        ->capture_default_str()
        ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
    app.add_option("--log-format", log_format, "text, or json: one object a line, for programs")
        ->capture_default_str()
        ->check(CLI::IsMember({"text", "json"}));
    app.fallthrough();
    app.get_formatter()->column_width(36);
    app.footer(
        "Exit codes: 0 done, 1 it ran and failed, 2 the command line or the configuration is wrong, 130 "
        "interrupted.");
    add_serve();
    add_generate();
    add_score();
    add_eval();
    add_bench();
    add_plan();
    add_verify();
    add_quantize();
    add_tokenize();
    add_render();
    add_doctor();
  }

  template <class T>
  CLI::App& add(Subcommand<T>& subcommand, const char* name, const char* what,
                ModelFlag model = ModelFlag::kRequired) {
    subcommand.app = app.add_subcommand(name, what);
    add_engine_flags(*subcommand.app, subcommand.values.engine, model);
    if constexpr (!std::is_same_v<T, BenchCommand>)  // which measures what one process can do
      add_hosts_flags(*subcommand.app, subcommand.values.engine.hosts);
    if constexpr (!std::is_same_v<T, PlanCommand>)  // which may plan for another machine by its name
      subcommand.app
          ->add_option("--machine", subcommand.values.engine.machine_file,
                       "File that `lockstep doctor --measure` wrote: what plans are priced with")
          ->group(kParallel);
    return *subcommand.app;
  }

  void add_serve() {
    CLI::App& sub =
        add(serve, "serve", "Serve the model over an OpenAI-compatible API, with a chat page at /");
    ServeCommand& values = serve.values;
    sub.add_option("--served-model-name", values.engine.served_name,
                   "Name of the model in the API; default: the folder's name");
    sub.add_option("--host", values.host, "Address to bind")->capture_default_str();
    sub.add_option("--port,-p", values.port, "Port; 0 takes any that is free")
        ->capture_default_str()
        ->check(CLI::Range(0, 65535));
    sub.add_option(
        "--api-key", values.api_keys,
        "Clients must send one of these; visible to others in the process list, prefer --api-key-file");
    sub.add_option("--api-key-file", values.api_key_file, "File with one key a line");
    sub.get_option("--api-key")->envname("LOCKSTEP_API_KEY");
    sub.add_option("--cors-origin", values.cors_origins,
                   "Pages of this origin may read answers in a browser; * is all of them; may be repeated");
    sub.add_option("--max-body-bytes", values.max_body_bytes, "Of a request; larger ones get 413")
        ->capture_default_str()
        ->check(CLI::Range(size_t{1024}, size_t{1} << 30));
    sub.add_option("--max-header-bytes", values.max_header_bytes, "Of a request; larger ones get 431")
        ->capture_default_str()
        ->check(CLI::Range(size_t{1024}, size_t{1} << 24));
    sub.add_option("--max-connections", values.max_connections, "Connections at once; further ones get 503")
        ->capture_default_str()
        ->check(CLI::Range(1, 1 << 20));
    sub.add_option("--reasoning-parser", values.reasoning_parser,
                   "How replies mark reasoning; auto: seen from the tokenizer and the template")
        ->capture_default_str()
        ->check(one_of(serving::reasoning::format_names()));
    sub.add_option("--tool-call-parser", values.tool_call_parser,
                   "How replies write tool calls; auto: seen from the tokenizer and the template")
        ->capture_default_str()
        ->check(one_of(serving::tool_parsing::format_names()));
    sub.add_flag_function(
        "--log-requests", [&values](int64_t) { values.request_log = serving::RequestLog::kAll; },
        "A line of the log for every request, with its id, status and time");
    add_fault_flags(sub, values.engine.faults);
    add_trace_flags(sub, values.engine);
    sub.add_option("--drain-seconds", values.drain_seconds,
                   "After SIGTERM running requests may go on for so long")
        ->capture_default_str()
        ->check(seconds_from(0.0));
  }

  void add_generate() {
    CLI::App& sub = add(generate, "generate",
                        "Continue a prompt, answer a chat message, or work through a file of prompts");
    GenerateCommand& values = generate.values;
    auto* source = sub.add_option_group("Prompt", "One of");
    source->add_option("--prompt", values.prompt, "Text to continue");
    source->add_option("--chat", values.chat, "A user's message, asked through the chat template");
    source->add_option(
        "--prompts", values.prompts_file,
        "JSON lines: {\"prompt\": text} or {\"messages\": [...]}; answers as JSON lines in the same order");
    source->require_option(1);
    add_sampling_flags(sub, values.sampling);
    add_thinking(sub, values.thinking);
    add_trace_flags(sub, values.engine);
    add_json(sub, values.format);
  }

  void add_score() {
    CLI::App& sub = add(score, "score", "Logits of a sequence of token ids, as JSON");
    sub.add_option("--ids", score.values.ids, "Token ids: 5,17,…")->delimiter(',')->required();
    sub.add_option("--greedy", score.values.greedy, "Continue greedily with so many tokens")
        ->capture_default_str()
        ->check(CLI::Range(0, 1 << 24));
    sub.add_option("--top", score.values.top, "Largest logits to list for each position")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000));
  }

  void add_eval() {
    CLI::App& sub =
        add(eval, "eval",
            "Ask problems with an integer answer through the chat template and count what is right");
    EvalCommand& values = eval.values;
    sub.add_option("--problems", values.problems_file,
                   "JSON lines: {\"question\": text, \"answer\": integer}")
        ->required();
    sub.add_option("--limit", values.limit, "Ask only the first so many")->check(CLI::Range(1, 1 << 30));
    sub.add_option("--max-tokens", values.max_tokens, "Tokens of one reply at most")
        ->capture_default_str()
        ->check(CLI::Range(1, 1 << 24));
    add_thinking(sub, values.thinking);
    add_json(sub, values.format);
  }

  void add_bench() {
    CLI::App& sub = add(bench, "bench",
                        "Measure how fast the engine decodes and takes prompts, or with --base-url how an "
                        "endpoint answers under load; the prompts are random");
    BenchCommand& values = bench.values;
    CLI::Option* model = sub.get_option("--model")->required(false);
    sub.add_option("--config", values.config_file,
                   "A config.json, whose folder is the model; not with --model")
        ->excludes(model);
    sub.add_flag_function(
        "--dummy-weights",
        [&values](int64_t) { values.engine.weights = runtime::EngineConfig::Weights::kRandom; },
        "Random numbers for weights: only the config is read");
    sub.add_option("--batch", values.batches,
                   "Requests that decode at once: 1,16,…; default: 1, 16 and --max-running-requests")
        ->delimiter(',')
        ->check(CLI::Range(1, 1 << 16));
    sub.add_option("--context", values.context,
                   "Tokens of prompt and output of a request that decodes; default: 512")
        ->check(CLI::Range(4, 1 << 24));
    sub.add_option("--output", values.output, "Tokens that a request decodes; default: 64")
        ->check(CLI::Range(3, 1 << 20));
    sub.add_option(
           "--prompt-length", values.prompts,
           "Tokens of the prompts whose prefill is timed: 512,2048,…; 0: none; default: 8192, or what fits")
        ->delimiter(',')
        ->check(CLI::Range(0, 1 << 24));
    sub.add_option("--repeats", values.repeats, "Measurements of each, of which the median counts")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000));
    add_json(sub, values.format);
    add_endpoint_flags(sub, values.endpoint);
  }

  void add_plan() {
    CLI::App& sub = add(plan, "plan",
                        "Print what a configuration solves to and its communication plan; reads no weights");
    add_plan_flags(sub, plan.values);
  }

  void add_verify() {
    CLI::App& sub = add(verify, "verify", "Prove a configuration's plans on symbolic rows; reads no weights");
    add_verify_flags(sub, verify.values);
  }

  void add_quantize() {
    quantize.app = app.add_subcommand(
        "quantize", "Write the checkpoint again with its linear layers quantized, in a published layout");
    CLI::App& sub = *quantize.app;
    runtime::QuantizeOptions& options = quantize.values.options;
    sub.add_option("--model,--model-path,-m", options.model_directory, "Folder of the checkpoint")
        ->required();
    add_choice(sub, "--format", options.format, "Number format of the weights", quant_formats())->required();
    sub.add_option("--output,-o", options.output_directory, "Folder to make; one that is there is refused")
        ->required();
    sub.add_option("--group-size", options.group_size,
                   "int4: inputs that share a factor; default: the largest of 128, 64, 32 that divides all")
        ->check(CLI::Range(8, 1 << 20));
    add_json(sub, quantize.values.format);
  }

  template <class T>
  CLI::App& add_lines(Subcommand<T>& subcommand, const char* name, const char* what) {
    subcommand.app = app.add_subcommand(name, what);
    subcommand.app
        ->add_option("--model,--model-path,-m", subcommand.values.model_directory, "Folder of the checkpoint")
        ->required();
    return *subcommand.app;
  }

  void add_tokenize() {
    add_lines(
        tokenize, "tokenize",
        "JSON lines {\"text\"} on standard input to {\"ids\", \"decoded\"} on standard output; reads no "
        "weights");
  }

  void add_render() {
    CLI::App& sub =
        add_lines(render, "render",
                  "JSON lines {\"messages\", \"tools\", \"add_generation_prompt\", \"kwargs\"} on "
                  "standard input to {\"rendered\"} or {\"error\"} on standard output; reads no weights");
    sub.add_option("--chat-template-name", render.values.template_name,
                   "Which of several templates of the checkpoint; default: the one called default");
  }

  void add_doctor() {
    CLI::App& sub =
        add(doctor, "doctor",
            "Say what a checkpoint is, what it needs and whether it will run; without --model, what "
            "this machine offers; reads no weights",
            ModelFlag::kOptional);
    add_doctor_flags(sub, doctor.values);
  }

  Command chosen() {
    if (serve.app->parsed()) return serve.values;
    if (generate.app->parsed()) return generate.values;
    if (score.app->parsed()) return score.values;
    if (eval.app->parsed()) return eval.values;
    if (bench.app->parsed()) return bench.values;
    if (plan.app->parsed()) return plan.values;
    if (quantize.app->parsed()) return quantize.values;
    if (tokenize.app->parsed()) return tokenize.values;
    if (render.app->parsed()) return render.values;
    if (verify.app->parsed()) return verify.values;
    return doctor.values;
  }
};

LogLevel log_level_of(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return name == "off" ? LogLevel::kOff : LogLevel::kInfo;
}

}  // namespace

Parsed parse_command_line(int argc, const char* const* argv) {
  if (const auto refusal = foreign_flag_in(argc, argv)) {
    fmt::print(stderr, "lockstep: {}\n", *refusal);
    return {.command = std::nullopt, .exit_code = kRefused};
  }
  CommandLine line;
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    // Help and version end here too, with exit code 0.
    const int code = line.app.exit(end);
    return {.command = std::nullopt, .exit_code = code == 0 ? kOk : kRefused};
  }
  return {.command = line.chosen(),
          .exit_code = kOk,
          .log_level = log_level_of(line.log_level),
          .log_format = line.log_format == "json" ? LogFormat::kJson : LogFormat::kText};
}

}  // namespace lockstep::cli
