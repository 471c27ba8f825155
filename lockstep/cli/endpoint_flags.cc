#include "lockstep/cli/endpoint_flags.h"

#include <string>
#include <vector>

namespace lockstep::cli {
namespace {

constexpr const char* kEndpoint = "Of an endpoint, with --base-url";
constexpr double kMost = 1e9;

}  // namespace

void add_endpoint_flags(CLI::App& app, EndpointBench& bench) {
  const auto in_group = [](CLI::Option* option) { return option->group(kEndpoint); };
  std::vector<CLI::Option*> of_engine;  // what was there before but for what both have
  for (CLI::Option* option : app.get_options())
    if (const std::string name = option->get_name();
        name != "--help" && name != "--model" && name != "--json")
      of_engine.push_back(option);
  CLI::Option* base_url = in_group(
      app.add_option("--base-url", bench.base_url,
                     "Measure the endpoint at http://HOST:PORT/v1; --model is then its name of the model"));
  for (CLI::Option* option : of_engine) base_url->excludes(option);
  const auto add = [&](const char* flag, auto& value, const char* what) {
    return in_group(app.add_option(flag, value, what))->needs(base_url);
  };
  in_group(app.add_option_function<std::string>(
                  "--api",
                  [&bench](const std::string& api) {
                    bench.api = api == "chat" ? EndpointBench::Api::kChat : EndpointBench::Api::kCompletions;
                  },
                  "What is asked for: chat (default) or completions")
               ->check(CLI::IsMember({"chat", "completions"})))
      ->needs(base_url);
  add("--bench-api-key", bench.api_key,
      "Sent as the bearer token; default: OPENAI_API_KEY of the environment");
  in_group(app.add_option_function<int>(
                  "--num-requests",
                  [&bench](int number) {
                    bench.num_requests = number;
                    bench.num_requests_given = true;
                  },
                  "Requests to send; default: 100, or the whole trace")
               ->check(CLI::Range(1, 1 << 22)))
      ->needs(base_url);
  CLI::Option* rate = add("--request-rate", bench.request_rate,
                          "Requests a second, at random (Poisson); default: all at once")
                          ->check(CLI::Range(1e-6, kMost));
  add("--max-concurrency", bench.max_concurrency,
      "Requests that are open at once, at most; default: no limit")
      ->check(CLI::Range(1, 1 << 20));
  CLI::Option* input =
      add("--input-tokens", bench.input_tokens, "Length of the prompts: 256, 128-1024 or normal:512:128")
          ->capture_default_str();
  CLI::Option* output = add("--output-tokens", bench.output_tokens, "Tokens to ask for, in the same words")
                            ->capture_default_str();
  CLI::Option* prefix =
      add("--shared-prefix-tokens", bench.prefix_tokens, "Tokens before the prompt that requests share")
          ->check(CLI::Range(1, 1 << 22));
  CLI::Option* prefixes = add("--num-prefixes", bench.num_prefixes, "How many such prefixes there are")
                              ->capture_default_str()
                              ->check(CLI::Range(1, 1 << 20));
  CLI::Option* trace =
      add("--trace", bench.trace_file,
          "JSON lines {\"timestamp\": ms, \"input_length\", \"output_length\"} (with \"hash_ids\" of shared "
          "blocks, \"prompt\" or "
          "\"messages\") instead");
  for (CLI::Option* drawn : {rate, input, output, prefix, prefixes}) trace->excludes(drawn);
  prefixes->needs(prefix);
  add("--trace-speed", bench.trace_speed, "How much faster than recorded")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, kMost))
      ->needs(trace);
  add("--temperature", bench.temperature, "Of the requests")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 2.0));
  in_group(app.add_flag("--ignore-eos", bench.ignore_eos, "Answers go on to their full length"))
      ->needs(base_url);
  add("--warmup", bench.num_warmup, "Requests before the measurement")->check(CLI::Range(1, 1 << 20));
  add("--seed", bench.seed, "Of arrivals, lengths and prompts")->capture_default_str();
  add("--slo-ttft-ms", bench.slo_ttft_ms, "Goodput counts requests whose first token came within this")
      ->check(CLI::Range(0.0, kMost));
  add("--slo-tpot-ms", bench.slo_tpot_ms, "... whose tokens then took this each, at most")
      ->check(CLI::Range(0.0, kMost));
  add("--slo-e2e-ms", bench.slo_e2e_ms, "... that were answered within this")->check(CLI::Range(0.0, kMost));
  add("--request-timeout", bench.timeout_seconds, "Seconds without a byte after which a request has failed")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 86400.0));
  add("--plot", bench.plot_file, "Write a picture: FILE.svg, or FILE.html with the table");
  add("--records", bench.records_file, "Write what was seen of each request, as JSON lines");
}

}  // namespace lockstep::cli
