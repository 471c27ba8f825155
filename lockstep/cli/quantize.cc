// lockstep quantize: a checkpoint with its linear layers quantized, and how far each is from what it was.
#include <algorithm>
#include <cstdio>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"

namespace lockstep::cli {
namespace {

Json to_json(const runtime::QuantizeReport& report) {
  Json weights = Json::array();
  for (const runtime::QuantizedWeight& weight : report.weights)
    weights.push_back({{"module", weight.module},
                       {"shape", {weight.rows, weight.cols}},
                       {"relative_error", weight.relative_error},
                       {"largest_error", weight.largest_error}});
  return {{"weights", std::move(weights)},   {"left_alone", report.left_alone},
          {"left_out", report.left_out},     {"tensors_copied", report.num_copied},
          {"bytes_read", report.bytes_read}, {"bytes_written", report.bytes_written}};
}

void print_text(const runtime::QuantizeReport& report) {
  fmt::print("{:<10} {:<10} {:<16} weight\n", "rel. error", "largest", "shape");
  double sum = 0;
  for (const runtime::QuantizedWeight& weight : report.weights) {
    sum += weight.relative_error;
    fmt::print("{:<10.5f} {:<10.3g} {:<16} {}\n", weight.relative_error, weight.largest_error,
               fmt::format("[{}, {}]", weight.rows, weight.cols), weight.module);
  }
  for (const std::string& module : report.left_alone)
    fmt::print("left as it is: {} has no place in blocks of this format\n", module);
  if (!report.left_out.empty())
    fmt::print("left out: {} tensors of the quantized source that no layer runs\n", report.left_out.size());
  fmt::print("{} weights, relative error {:.5f} on average; {} tensors copied; {:.1f} MB became {:.1f} MB\n",
             report.weights.size(), sum / static_cast<double>(std::max<size_t>(report.weights.size(), 1)),
             report.num_copied, static_cast<double>(report.bytes_read) / 1e6,
             static_cast<double>(report.bytes_written) / 1e6);
}

}  // namespace

int run(const QuantizeCommand& command) {
  const std::atomic<int>& stop = interrupted();
  Result<runtime::QuantizeReport> report = [&] {
    ProgressLine line;
    return runtime::quantize_checkpoint(command.options, [&](const runtime::QuantizeProgress& progress) {
      line.show(fmt::format("quantized {} of {}, {:.1f} of {:.1f} MB", progress.num_done, progress.num_all,
                            static_cast<double>(progress.bytes_written) / 1e6,
                            static_cast<double>(progress.bytes_all) / 1e6));
      return stop == 0;
    });
  }();
  if (stop != 0 && !report) return kInterrupted;
  if (!report) return cli::report(report.error());
  if (command.format == OutputFormat::kJson) {
    fmt::print("{}\n", to_text(to_json(*report)));
  } else {
    print_text(*report);
  }
  return kOk;
}

}  // namespace lockstep::cli
