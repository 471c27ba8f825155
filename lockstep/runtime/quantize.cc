#include "lockstep/runtime/quantize.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "lockstep/base/file.h"
#include "lockstep/models/registry.h"
#include "lockstep/models/weights.h"
#include "lockstep/runtime/quantize_config.h"
#include "lockstep/tensors/safetensors_writer.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kShardBytes = uint64_t{4} << 30;

// What goes into the output together: a tensor as it is, or a weight in the tensors that it becomes.
struct Unit {
  enum class Kind : uint8_t { kCopy, kEncode, kWiden, kEncodeTogether } kind = Kind::kCopy;
  std::string name;    // in the source
  std::string module;  // in the output; of kCopy: the tensor's name
  int64_t count =
      0;  // the source holds so many matrices in one tensor; 0: the one. kEncodeTogether: inputs first
  int64_t matrix = 0;  // which of them
  int64_t source_rows = 0;
  int64_t first_row = 0, rows = 0, cols = 0;
};

std::string without_suffix(const std::string& name, std::string_view suffix) {
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

Unit unit_of(const models::WeightUse& use) {
  return {.kind = Unit::Kind::kEncode,
          .name = use.name,
          .module = without_suffix(use.name, ".weight"),
          .count = use.count,
          .source_rows = use.rows,
          .rows = use.rows,
          .cols = use.cols};
}

// Experts that lie together are written one by one, gate and up apart, as all layouts of quantized experts
// are.
void add_experts(const models::WeightUse& use, std::vector<Unit>& units) {
  const size_t dot = use.name.rfind('.');
  const std::string prefix = use.name.substr(0, dot + 1), what = use.name.substr(dot + 1);
  for (int64_t expert = 0; expert < use.count; ++expert) {
    Unit unit = unit_of(use);
    unit.matrix = expert;
    const auto add = [&](const char* name, int64_t first_row, int64_t rows) {
      unit.module = fmt::format("{}{}.{}", prefix, expert, name);
      unit.first_row = first_row;
      unit.rows = rows;
      units.push_back(unit);
    };
    if (what == "gate_up_proj") {
      add("gate_proj", 0, use.rows / 2);
      add("up_proj", use.rows / 2, use.rows / 2);
    } else {
      add(what.c_str(), 0, use.rows);
    }
  }
}

// gpt-oss: all experts' matrices of a kind are in one tensor, [experts, inputs, outputs].
bool holds_all_experts(const std::string& name) {
  return name.ends_with(".experts.gate_up_proj") || name.ends_with(".experts.down_proj");
}

// [outputs, inputs] of one of them.
std::vector<float> matrix_of(const TensorView& experts, int64_t expert) {
  const int64_t inputs = experts.shape[1], outputs = experts.shape[2];
  TensorView flat = experts;
  flat.num_dims = 2;
  flat.shape = {experts.shape[0] * inputs, outputs};
  flat.stride = {outputs, 1};
  const WeightView rows = flat.row_range(expert * inputs, inputs);
  std::vector<float> row(static_cast<size_t>(outputs)), matrix(static_cast<size_t>(inputs * outputs));
  for (int64_t input = 0; input < inputs; ++input) {
    decode_row(rows, input, 0, outputs, row.data());
    for (int64_t output = 0; output < outputs; ++output)
      matrix[static_cast<size_t>(output * inputs + input)] = row[static_cast<size_t>(output)];
  }
  return matrix;
}

Status check_finite(const std::string& name, const std::vector<float>& numbers) {
  if (std::all_of(numbers.begin(), numbers.end(), [](float number) { return std::isfinite(number); }))
    return Done{};
  return invalid_argument(name, "{} holds numbers that are not finite", name);
}

// What is known of the source before anything is written.
class Source {
 public:
  static Result<Source> open(const std::string& directory) {
    auto info = models::describe(directory);
    if (!info) return info.error();
    auto config = models::read_config(directory);
    if (!config) return config.error();
    auto checkpoint = Checkpoint::open(directory);
    if (!checkpoint) return checkpoint.error();
    Source source(*std::move(config), *std::move(checkpoint));
    if (const Status status = source.inspect(*info->description); !status) return status.error();
    return source;
  }

  const Json& config() const { return config_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  bool has_experts_together() const { return has_experts_together_; }
  bool is_quantized() const { return quantization_.method != models::QuantConfig::Method::kNone; }

  std::vector<Unit> weights() const {
    std::vector<Unit> units;
    std::set<std::string> seen;
    for (const models::WeightUse& use : uses_) {
      if (use.as != models::WeightUse::As::kWeight || models::is_table(use.name) ||
          !seen.insert(use.name).second)
        continue;
      if (use.count == 0) {
        units.push_back(unit_of(use));
      } else {
        add_experts(use, units);
      }
    }
    return units;
  }

  // Whether a tensor of the file is read as plain numbers, tables included.
  std::set<std::string> plain_tensors() const {
    std::set<std::string> names;
    for (const models::WeightUse& use : uses_)
      if (use.as == models::WeightUse::As::kNumbers || models::is_table(use.name)) names.insert(use.name);
    return names;
  }

  // The numbers of a unit, row by row.
  Result<std::vector<float>> read(const Unit& unit) const {
    models::WeightReader reader(checkpoint_, quantization_);
    WeightView view;
    if (unit.count == 0) {
      view = reader.weight(unit.name, unit.source_rows, unit.cols);
    } else {
      const auto parts =
          reader.weights(unit.name, unit.count, unit.source_rows, unit.cols, {unit.matrix, unit.matrix + 1});
      if (!parts.empty()) view = parts.front();
    }
    if (const Status status = reader.status(); !status) return status.error();
    std::vector<float> numbers(static_cast<size_t>(unit.rows * unit.cols));
    for (int64_t row = 0; row < unit.rows; ++row)
      decode_row(view, unit.first_row + row, 0, unit.cols, numbers.data() + row * unit.cols);
    if (const Status status = check_finite(unit.name, numbers); !status) return status.error();
    return numbers;
  }

 private:
  Source(Json config, Checkpoint checkpoint)
      : config_(std::move(config)), checkpoint_(std::move(checkpoint)) {}

  Status inspect(const models::ModelDescription& description) {
    has_experts_together_ = description.family() == "gpt_oss";
    models::ConfigReader reader(config_);
    quantization_ = models::read_quantization(reader);
    if (const Status status = reader.status(); !status) return status;
    models::WeightSource whole(checkpoint_);
    whole.purpose = models::WeightSource::Purpose::kInspect;
    whole.uses = &uses_;
    if (const auto loaded = description.load(whole, {}); !loaded) return loaded.error();
    return Done{};
  }

  Json config_;
  Checkpoint checkpoint_;
  models::QuantConfig quantization_;
  std::vector<models::WeightUse> uses_;
  bool has_experts_together_ = false;
};

WeightEncoding encoding_of(const QuantizeOptions& options, const std::vector<Unit>& weights) {
  WeightEncoding encoding{.format = options.format};
  if (options.group_size > 0) {
    encoding.group_size = options.group_size;
    return encoding;
  }
  for (const int64_t size : {128, 64, 32}) {
    encoding.group_size = size;
    if (std::all_of(weights.begin(), weights.end(),
                    [&](const Unit& unit) { return encoding.fits(unit.cols); }))
      break;
  }
  return encoding;
}

// Everything that will be written, in its order.
struct Contents {
  WeightEncoding encoding;
  std::vector<Unit> units;
  std::vector<std::string> ignored;  // modules with a matrix that is not quantized
  QuantizeReport report;
};

Contents contents_of(const QuantizeOptions& options, const Source& source) {
  Contents contents;
  const std::vector<Unit> weights = source.weights();
  contents.encoding = encoding_of(options, weights);
  std::set<std::string> consumed;  // names of the source's weights
  const auto leave = [&](const std::string& module) {
    if (!module.ends_with("embed_tokens")) contents.ignored.push_back(module);
  };
  for (Unit unit : weights) {
    consumed.insert(unit.name);
    if (!contents.encoding.fits(unit.cols)) {
      unit.kind = Unit::Kind::kWiden;
      contents.report.left_alone.push_back(unit.module);
      leave(unit.module);
    }
    contents.units.push_back(std::move(unit));
  }
  const std::set<std::string> plain = source.plain_tensors();
  for (const std::string& name : source.checkpoint().names()) {
    const bool is_used = plain.contains(name);
    if (consumed.contains(name)) continue;
    if (!is_used && source.is_quantized()) {
      contents.report.left_out.push_back(name);
      continue;
    }
    contents.units.push_back({.kind = Unit::Kind::kCopy, .name = name, .module = name});
    const auto found = source.checkpoint().find(name);
    if (found && found->num_dims == 2 && name.ends_with(".weight")) leave(without_suffix(name, ".weight"));
    ++contents.report.num_copied;
  }
  return contents;
}

// gpt-oss has one published layout: experts in MXFP4, everything else as it is.
Result<Contents> contents_with_experts_together(const QuantizeOptions& options, const Source& source) {
  if (options.format != QuantFormat::kMxfp4)
    return invalid_argument("--format", "gpt_oss is published in MXFP4 alone: use --format mxfp4");
  if (source.is_quantized())
    return invalid_argument("--model", "this gpt_oss is in MXFP4 already: there is nothing to quantize");
  Contents contents;
  contents.encoding = {.format = options.format};
  for (const std::string& name : source.checkpoint().names()) {
    const TensorView view = source.checkpoint().find(name).value();
    if (!holds_all_experts(name) || view.num_dims != 3) {
      contents.units.push_back({.kind = Unit::Kind::kCopy, .name = name, .module = name});
      ++contents.report.num_copied;
      continue;
    }
    if (view.dtype != DType::kBF16 && view.dtype != DType::kF32)
      return invalid_argument(name, "{} is {}; experts are quantized from bf16 or f32", name,
                              name_of(view.dtype));
    if (!contents.encoding.fits(view.shape[1]))
      return invalid_argument(name, "{} has {} inputs, not a multiple of MXFP4's 32", name, view.shape[1]);
    contents.units.push_back({.kind = Unit::Kind::kEncodeTogether,
                              .name = name,
                              .module = name,
                              .count = view.shape[0],
                              .rows = view.shape[2],
                              .cols = view.shape[1]});
  }
  contents.ignored = {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                      "lm_head"};
  return contents;
}

std::vector<NewTensor> tensors_of(const Unit& unit, const Contents& contents, const Checkpoint& checkpoint) {
  if (unit.kind == Unit::Kind::kEncodeTogether)
    return {{unit.module + "_blocks", DType::kU8, {unit.count, unit.rows, unit.cols / 32, 16}},
            {unit.module + "_scales", DType::kU8, {unit.count, unit.rows, unit.cols / 32}}};
  if (unit.kind == Unit::Kind::kWiden)
    return {{unit.module + ".weight", DType::kBF16, {unit.rows, unit.cols}}};
  std::vector<NewTensor> tensors;
  if (unit.kind == Unit::Kind::kCopy) {
    const TensorView view = checkpoint.find(unit.name).value();
    tensors.push_back({unit.module, view.dtype, {view.shape.begin(), view.shape.begin() + view.num_dims}});
    return tensors;
  }
  for (const EncodedTensor& tensor : encoded_tensors(contents.encoding, unit.rows, unit.cols))
    tensors.push_back({unit.module + tensor.suffix, tensor.dtype, tensor.shape});
  return tensors;
}

QuantizedWeight measure(const Unit& unit, const std::vector<float>& numbers, const WeightView& encoded) {
  std::vector<float> decoded(static_cast<size_t>(unit.cols));
  double squares = 0, squared_errors = 0, largest = 0;
  for (int64_t row = 0; row < unit.rows; ++row) {
    decode_row(encoded, row, 0, unit.cols, decoded.data());
    for (int64_t col = 0; col < unit.cols; ++col) {
      const double number = numbers[static_cast<size_t>(row * unit.cols + col)];
      const double error = std::abs(number - static_cast<double>(decoded[static_cast<size_t>(col)]));
      squares += number * number;
      squared_errors += error * error;
      largest = std::max(largest, error);
    }
  }
  return {.module = unit.module,
          .rows = unit.rows,
          .cols = unit.cols,
          .relative_error = squares > 0 ? std::sqrt(squared_errors / squares) : 0,
          .largest_error = largest};
}

// A folder beside the output that becomes the output, or goes.
class Draft {
 public:
  static Result<Draft> create(const fs::path& output) {
    std::error_code error;
    if (fs::exists(fs::symlink_status(output, error)))
      return invalid_argument("--output", "--output {} is there already: name a folder that is not",
                              output.string());
    Draft draft(output, fs::path(output.string() + fmt::format(".partial-{}", ::getpid())));
    fs::create_directories(draft.path_, error);
    if (error)
      return invalid_argument("--output", "cannot make {}: {}", draft.path_.string(), error.message());
    return draft;
  }
  Draft(Draft&& other) noexcept : output_(std::move(other.output_)), path_(std::exchange(other.path_, {})) {}
  Draft& operator=(Draft&&) = delete;
  ~Draft() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }
  Status publish() {
    std::error_code error;
    fs::rename(path_, output_, error);
    if (error) return invalid_argument("--output", "cannot name {}: {}", output_.string(), error.message());
    path_.clear();
    return Done{};
  }

 private:
  Draft(fs::path output, fs::path path) : output_(std::move(output)), path_(std::move(path)) {}
  fs::path output_, path_;
};

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return Done{};
  return Error{ErrorCode::kUnavailable, fmt::format("cannot write {}", path.string()), path.string()};
}

class Writing {
 public:
  Writing(const Source& source, Contents& contents, fs::path folder, const QuantizeWatch& watch)
      : source_(source), contents_(contents), folder_(std::move(folder)), watch_(watch) {}

  Status run() {
    const std::vector<Shard> shards = cut_into_shards();
    progress_.num_all = contents_.units.size();
    for (size_t at = 0; at < shards.size(); ++at) {
      const std::string name = shards.size() == 1
                                   ? "model.safetensors"
                                   : fmt::format("model-{:05}-of-{:05}.safetensors", at + 1, shards.size());
      if (const Status status = write_shard(shards[at], name); !status) return status;
    }
    contents_.report.bytes_written = progress_.bytes_written;
    if (shards.size() == 1) return Done{};
    const Json index = {{"metadata", {{"total_size", progress_.bytes_written}}}, {"weight_map", shard_of_}};
    return write_text(folder_ / "model.safetensors.index.json", index.dump(1));
  }

 private:
  struct Shard {
    size_t begin = 0, end = 0;  // units
    std::vector<NewTensor> tensors;
  };

  std::vector<Shard> cut_into_shards() {
    std::vector<Shard> shards(1);
    uint64_t bytes = 0;
    for (size_t at = 0; at < contents_.units.size(); ++at) {
      const auto tensors = tensors_of(contents_.units[at], contents_, source_.checkpoint());
      uint64_t added = 0;
      for (const NewTensor& tensor : tensors) added += tensor.bytes();
      if (bytes > 0 && bytes + added > kShardBytes) {
        shards.push_back({.begin = at});
        bytes = 0;
      }
      bytes += added;
      progress_.bytes_all += added;
      shards.back().end = at + 1;
      shards.back().tensors.insert(shards.back().tensors.end(), tensors.begin(), tensors.end());
    }
    return shards;
  }

  Status write_shard(const Shard& shard, const std::string& name) {
    auto writer = SafetensorsWriter::create(folder_ / name, shard.tensors);
    if (!writer) return writer.error();
    for (const NewTensor& tensor : shard.tensors) shard_of_[tensor.name] = name;
    for (size_t at = shard.begin; at < shard.end; ++at) {
      if (const Status status = write_unit(contents_.units[at], *writer); !status) return status;
      ++progress_.num_done;
      if (watch_ && !watch_(progress_))
        return Error{ErrorCode::kUnavailable, "stopped; nothing was written", ""};
    }
    return writer->finish();
  }

  Status write(SafetensorsWriter& writer, std::span<const std::byte> bytes) {
    progress_.bytes_written += bytes.size();
    return writer.write(bytes);
  }

  // Codes go out expert after expert; only factors wait for their tensor.
  Status write_together(const Unit& unit, SafetensorsWriter& writer) {
    const TensorView experts = source_.checkpoint().find(unit.name).value();
    std::vector<std::byte> factors;
    for (int64_t expert = 0; expert < unit.count; ++expert) {
      const std::vector<float> numbers = matrix_of(experts, expert);
      if (const Status status = check_finite(unit.name, numbers); !status) return status;
      const auto tensors = encode_weight(contents_.encoding, numbers.data(), unit.rows, unit.cols);
      LOCKSTEP_CHECK_EQ(tensors.size(), size_t{2});
      Unit one = unit;
      one.module = fmt::format("{}[{}]", unit.module, expert);
      contents_.report.weights.push_back(
          measure(one, numbers, view_of(contents_.encoding, tensors, unit.rows, unit.cols)));
      if (const Status status = write(writer, tensors[0].bytes); !status) return status;
      factors.insert(factors.end(), tensors[1].bytes.begin(), tensors[1].bytes.end());
    }
    return write(writer, factors);
  }

  Status write_unit(const Unit& unit, SafetensorsWriter& writer) {
    if (unit.kind == Unit::Kind::kEncodeTogether) return write_together(unit, writer);
    if (unit.kind == Unit::Kind::kCopy) {
      const TensorView view = source_.checkpoint().find(unit.name).value();
      const size_t bytes = static_cast<size_t>(view.num_elements()) * size_of(view.dtype);
      return write(writer, {static_cast<const std::byte*>(view.data), bytes});
    }
    const auto numbers = source_.read(unit);
    if (!numbers) return numbers.error();
    if (unit.kind == Unit::Kind::kWiden) {
      std::vector<BF16> narrow;
      for (const float number : *numbers) narrow.push_back(to_bf16(number));
      return write(writer, std::as_bytes(std::span(narrow)));
    }
    const auto tensors = encode_weight(contents_.encoding, numbers->data(), unit.rows, unit.cols);
    contents_.report.weights.push_back(
        measure(unit, *numbers, view_of(contents_.encoding, tensors, unit.rows, unit.cols)));
    for (const EncodedTensor& tensor : tensors)
      if (const Status status = write(writer, tensor.bytes); !status) return status;
    return Done{};
  }

  const Source& source_;
  Contents& contents_;
  const fs::path folder_;
  const QuantizeWatch& watch_;
  QuantizeProgress progress_;
  std::map<std::string, std::string> shard_of_;
};

// The tokenizer, the template, licences: all but weights and what describes them.
Status copy_other_files(const fs::path& from, const fs::path& to) {
  static constexpr std::string_view kWeights[] = {".safetensors", ".bin", ".pt",  ".pth",
                                                  ".gguf",        ".h5",  ".onnx"};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_weights = std::any_of(std::begin(kWeights), std::end(kWeights),
                                        [&](std::string_view suffix) { return name.ends_with(suffix); });
    if (!entry.is_regular_file(error) || is_weights || name.ends_with(".index.json") ||
        name == "config.json" || name == "hf_quant_config.json" || name.starts_with('.'))
      continue;
    fs::copy_file(entry.path(), to / name, error);
    if (error) return invalid_argument(name, "cannot copy {}: {}", entry.path().string(), error.message());
  }
  if (error) return invalid_argument(from.string(), "cannot list {}: {}", from.string(), error.message());
  return Done{};
}

}  // namespace

Result<QuantizeReport> quantize_checkpoint(const QuantizeOptions& options, const QuantizeWatch& watch) {
  if (options.group_size != 0 && (options.group_size < 8 || options.group_size % 8 != 0))
    return invalid_argument("--group-size", "--group-size {} is not a multiple of 8", options.group_size);
  auto draft = Draft::create(fs::path(options.output_directory).lexically_normal());
  if (!draft) return draft.error();
  auto source = Source::open(options.model_directory);
  if (!source) return source.error();
  auto planned = source->has_experts_together() ? contents_with_experts_together(options, *source)
                                                : Result<Contents>(contents_of(options, *source));
  if (!planned) return planned.error();
  Contents contents = *std::move(planned);
  const bool fits_any = std::any_of(contents.units.begin(), contents.units.end(), [](const Unit& unit) {
    return unit.kind == Unit::Kind::kEncode || unit.kind == Unit::Kind::kEncodeTogether;
  });
  if (!fits_any)
    return invalid_argument("--format", "none of the {} weights has a place in this format",
                            contents.units.size());
  contents.report.bytes_read = source->checkpoint().total_bytes();
  if (const Status status = Writing(*source, contents, draft->path(), watch).run(); !status)
    return status.error();

  Json config = source->config();
  config.erase("compression_config");
  config["quantization_config"] = source->has_experts_together()
                                      ? together_config(contents.ignored)
                                      : quantization_config(contents.encoding, contents.ignored);
  if (!contents.report.left_out.empty() && config.contains("num_nextn_predict_layers"))
    config["num_nextn_predict_layers"] = 0;
  if (const Status status = write_text(draft->path() / "config.json", config.dump(2) + "\n"); !status)
    return status.error();
  if (const Status status = copy_other_files(options.model_directory, draft->path()); !status)
    return status.error();
  if (const Status status = draft->publish(); !status) return status.error();
  return std::move(contents.report);
}

}  // namespace lockstep::runtime
