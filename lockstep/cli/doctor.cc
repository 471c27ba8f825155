// lockstep doctor: what a checkpoint is, what it needs, whether it will run; or what the machine offers.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"
#include "lockstep/runtime/inspect.h"
#include "lockstep/runtime/measure_machine.h"
#include "lockstep/serving/chat.h"

namespace lockstep::cli {
namespace {

// How the folder talks; nothing of it is there without a tokenizer.
struct Speech {
  std::optional<int> num_tokens;
  bool has_template = false;
  std::string reasoning = "none", tool_calls = "none";
};

Speech look_at_speech(const std::string& folder, runtime::Inspection& found) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::path(folder) / "tokenizer.json", ignored)) {
    // A config alone is asked about on purpose; weights without a tokenizer are a copy that is not whole.
    const std::string missing = "tokenizer.json is not in the folder: text cannot be turned into tokens";
    (found.weights ? found.faults : found.notes).push_back(missing);
    return {};
  }
  const auto model = serving::ChatModel::load(folder);
  if (!model) {
    found.faults.push_back(model.error().message);
    return {};
  }
  if (!model->has_template())
    found.notes.push_back("there is no chat template: /v1/completions works, /v1/chat/completions does not");
  if (found.model && model->tokenizer().size() > found.model->shape.vocab)
    found.notes.push_back(
        fmt::format("the tokenizer knows {} tokens, the model {}: text with the others is refused",
                    model->tokenizer().size(), found.model->shape.vocab));
  return {.num_tokens = model->tokenizer().size(),
          .has_template = model->has_template(),
          .reasoning = std::string(serving::reasoning::name_of(model->reasoning_format())),
          .tool_calls = std::string(serving::tool_parsing::name_of(model->tool_format()))};
}

std::string in_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.1f} GB", bytes / 1e9);
  return bytes >= 1e6 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.0f} bytes", bytes);
}

std::string in_numbers(double count) {
  if (count >= 1e9) return fmt::format("{:.2f} billion", count / 1e9);
  return count >= 1e6 ? fmt::format("{:.2f} million", count / 1e6) : fmt::format("{:.0f}", count);
}

void line(std::string_view what, const std::string& text) { fmt::print("{:<13}{}\n", what, text); }

std::string sizes_of(const runtime::ModelFacts& model) {
  const planning::ModelShape& shape = model.shape;
  const auto dense = std::count(shape.layers.begin(), shape.layers.end(), planning::ModelShape::Ffn::kDense);
  std::string text = fmt::format("{} layers, hidden {}, {} heads, vocabulary {}", shape.layers.size(),
                                 shape.hidden, shape.num_heads, shape.vocab);
  if (dense > 0) text += fmt::format("; {} dense of width {}", dense, shape.dense_inter);
  if (const size_t sparse = shape.layers.size() - static_cast<size_t>(dense); sparse > 0) {
    text += fmt::format("; {} with {} experts of width {}, {} a token", sparse, shape.num_experts,
                        shape.expert_inter, shape.top_k);
    if (shape.shared_inter > 0) text += fmt::format(", shared width {}", shape.shared_inter);
  }
  return text;
}

void print_model(const runtime::ModelFacts& model) {
  line("sizes", sizes_of(model));
  line("parameters", fmt::format("{}, of which a token meets {}", in_numbers(model.total_parameters),
                                 in_numbers(model.active_parameters)));
  line("context", fmt::format("{} tokens", model.context_length));
}

void print_weights(const runtime::WeightFiles& weights) {
  std::string types;
  for (const auto& [type, bytes] : weights.bytes_by_type)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", type, in_bytes(static_cast<double>(bytes)));
  line("weights", fmt::format("{} in {} tensors: {}", in_bytes(static_cast<double>(weights.bytes)),
                              weights.num_tensors, types));
}

void print_needs(const runtime::Needs& needs) {
  line("ranks", fmt::format("{} in {} replicas, {} requests at once", needs.num_ranks, needs.num_replicas,
                            needs.max_running_requests));
  std::string rank = fmt::format("reads {} of weights, caches {} bytes a token",
                                 in_bytes(needs.weight_bytes_per_rank), needs.cache_bytes_per_token);
  if (needs.cache_bytes_per_sequence > 0)
    rank += fmt::format(" and {} a sequence", in_bytes(static_cast<double>(needs.cache_bytes_per_sequence)));
  line("a rank", rank);
  line("cache", fmt::format("{} tokens a replica, {} for all ranks when it is full", needs.cached_tokens,
                            in_bytes(needs.cache_bytes)));
}

void print_machine(const runtime::MachineFacts& machine) {
  line("cores", fmt::format("{}, with {}", machine.num_cores, machine.instruction_set));
  line("memory", in_bytes(static_cast<double>(machine.memory_bytes)) +
                     (machine.memory_limit_bytes
                          ? fmt::format(", of which the control group allows {}",
                                        in_bytes(static_cast<double>(*machine.memory_limit_bytes)))
                          : ""));
  line("gpus", machine.num_gpus == 0 ? std::string("none that this build uses")
                                     : fmt::format("{} with {} free together", machine.num_gpus,
                                                   in_bytes(machine.gpu_memory_bytes)));
}

void print_text(const DoctorCommand& command, const runtime::Inspection& found, const Speech& speech,
                const runtime::MachineFacts& machine) {
  line("folder", command.engine.model_directory);
  line("family", fmt::format("{}{}", found.model ? found.model->family : "not one that runs here",
                             found.architecture.empty() ? "" : " (" + found.architecture + ")"));
  if (found.model) print_model(*found.model);
  if (found.weights) print_weights(*found.weights);
  if (found.needs) print_needs(*found.needs);
  if (speech.num_tokens)
    line("text", fmt::format("tokenizer of {} tokens, {} chat template, reasoning {}, tool calls {}",
                             *speech.num_tokens, speech.has_template ? "a" : "no", speech.reasoning,
                             speech.tool_calls));
  print_machine(machine);
  for (const std::string& note : found.notes) line("note", note);
  for (const std::string& fault : found.faults) line("fault", fault);
  const size_t faults = found.faults.size();
  line("verdict", faults == 0 ? "it will run"
                              : fmt::format("it will not run: {} fault{}", faults, faults == 1 ? "" : "s"));
}

Json machine_json(const runtime::MachineFacts& machine) {
  Json json = {{"cores", machine.num_cores},
               {"instruction_set", machine.instruction_set},
               {"memory_bytes", machine.memory_bytes},
               {"memory_limit_bytes", nullptr},
               {"gpus", machine.num_gpus},
               {"gpu_free_bytes", machine.gpu_memory_bytes}};
  if (machine.memory_limit_bytes) json["memory_limit_bytes"] = *machine.memory_limit_bytes;
  return json;
}

Json model_json(const runtime::ModelFacts& model) {
  const planning::ModelShape& shape = model.shape;
  return {{"layers", shape.layers.size()},
          {"dense_layers",
           std::count(shape.layers.begin(), shape.layers.end(), planning::ModelShape::Ffn::kDense)},
          {"hidden", shape.hidden},
          {"heads", shape.num_heads},
          {"vocab", shape.vocab},
          {"experts", shape.num_experts},
          {"experts_per_token", shape.top_k},
          {"context_length", model.context_length},
          {"eos_token_ids", model.eos_token_ids},
          {"parameters", {{"total", model.total_parameters}, {"active", model.active_parameters}}}};
}

Json to_json(const DoctorCommand& command, const runtime::Inspection& found, const Speech& speech,
             const runtime::MachineFacts& machine) {
  Json json = {{"folder", command.engine.model_directory},
               {"will_run", found.faults.empty()},
               {"family", nullptr},
               {"architecture", found.architecture},
               {"model", nullptr},
               {"weights", nullptr},
               {"needs", nullptr},
               {"tokenizer", nullptr}};
  if (found.model) {
    json["family"] = found.model->family;
    json["model"] = model_json(*found.model);
  }
  if (found.weights)
    json["weights"] = {{"bytes", found.weights->bytes},
                       {"tensors", found.weights->num_tensors},
                       {"bytes_by_type", found.weights->bytes_by_type}};
  if (found.needs)
    json["needs"] = {{"ranks", found.needs->num_ranks},
                     {"replicas", found.needs->num_replicas},
                     {"max_running_requests", found.needs->max_running_requests},
                     {"weight_bytes_per_rank", found.needs->weight_bytes_per_rank},
                     {"cache_bytes_per_token_and_rank", found.needs->cache_bytes_per_token},
                     {"cache_bytes_per_sequence_and_rank", found.needs->cache_bytes_per_sequence},
                     {"cached_tokens_per_replica", found.needs->cached_tokens},
                     {"cache_bytes", found.needs->cache_bytes}};
  if (speech.num_tokens)
    json["tokenizer"] = {{"tokens", *speech.num_tokens},
                         {"chat_template", speech.has_template},
                         {"reasoning", speech.reasoning},
                         {"tool_calls", speech.tool_calls}};
  json["machine"] = machine_json(machine);
  json["notes"] = found.notes;
  json["faults"] = found.faults;
  return json;
}

void print_measured(const runtime::MachineMeasurement& measured) {
  line("machine", measured.machine.name);
  line("launch", fmt::format("{:.2f} us", measured.machine.launch_us));
  fmt::print("{:>5} {:>14} {:>10} {:>12} {:>11} {:>13}\n", "ranks", "collective us", "link GB/s",
             "memory GB/s", "memory GB", "product TFLOP/s");
  for (const planning::WorldConstants& world : measured.machine.worlds)
    fmt::print("{:>5} {:>14.1f} {:>10.2f} {:>12.2f} {:>11.2f} {:>13.4f}\n", world.num_ranks,
               world.collective_us, world.link_gbs, world.memory_gbs, world.memory_gb, world.peak_tflops);
  fmt::print("what the cost model says with them of other steps\n");
  for (const runtime::CheckedStep& check : measured.checks)
    fmt::print("{:>5} ranks {:<24} measured {:>9.1f} us, predicted {:>9.1f} us, ratio {:.2f}\n",
               check.num_ranks, check.what, check.measured_us, check.predicted_us,
               check.measured_us / check.predicted_us);
  for (const auto& [constant, source] : measured.machine.sources) fmt::print("{:<14} {}\n", constant, source);
}

int run_measure(const DoctorCommand& command) {
  ProgressLine shown;
  const auto measured = runtime::measure_machine({.device = command.engine.device,
                                                  .threads = command.engine.threads,
                                                  .instruction_set = command.engine.instruction_set,
                                                  .max_ranks = command.engine.parallel.tp_size.value_or(8)},
                                                 [&](std::string_view text) { shown.show(text); });
  if (!measured) return report(measured.error());
  const std::string text = planning::to_json(measured->machine).dump(2) + "\n";
  if (!command.machine_file.empty()) {
    std::ofstream out(command.machine_file);
    out << text;
    if (!out.flush())
      return report(
          invalid_argument("--output", "--output {}: the file could not be written", command.machine_file));
  }
  if (command.format == OutputFormat::kJson)
    fmt::print("{}", text);
  else
    print_measured(*measured);
  return kOk;
}

}  // namespace

int run(const DoctorCommand& command) {
  if (command.task == DoctorCommand::Task::kMeasure) return run_measure(command);
  const runtime::MachineFacts machine = runtime::machine_facts();
  if (command.engine.model_directory.empty()) {
    if (command.format == OutputFormat::kJson)
      fmt::print("{}\n", to_text(machine_json(machine)));
    else
      print_machine(machine);
    return kOk;
  }
  runtime::Inspection found = runtime::inspect(command.engine, machine);
  const Speech speech = look_at_speech(command.engine.model_directory, found);
  if (command.format == OutputFormat::kJson)
    fmt::print("{}\n", to_text(to_json(command, found, speech, machine)));
  else
    print_text(command, found, speech, machine);
  return found.faults.empty() ? kOk : kFailed;
}

}  // namespace lockstep::cli
