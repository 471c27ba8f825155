#include "lockstep/runtime/step_trace.h"

#include "lockstep/base/json.h"
#include "lockstep/base/log.h"

namespace lockstep::runtime {
namespace {

constexpr int kEngineThread = 0;  // ranks follow
constexpr int kBesideThread = 1'000'000;

double microseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// "computes experts.3" is a stage, "all_reduce on the edge a -> b" a step of an edge.
std::string_view kind_of(std::string_view what) {
  return what.find(" on the edge ") != std::string_view::npos ? "edge" : "stage";
}

}  // namespace

Result<std::shared_ptr<StepTrace>> StepTrace::open(const std::string& path, int max_steps) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return invalid_argument("--trace", "{} cannot be written", path);
  auto trace = std::shared_ptr<StepTrace>(new StepTrace(std::move(file), path, max_steps));
  if (!trace->file_.flush())  // a disk that is full, say
    return invalid_argument("--trace", "{} cannot be written", path);
  return trace;
}

StepTrace::StepTrace(std::ofstream file, std::string path, int max_steps)
    : file_(std::move(file)), path_(std::move(path)), steps_left_(max_steps) {
  file_ << R"({"displayTimeUnit":"ms","traceEvents":[)";
  name_thread(kEngineThread, "engine");
  name_thread(kBesideThread, "engine, beside a step");
}

StepTrace::~StepTrace() {
  const std::lock_guard lock(mutex_);
  close();
}

void StepTrace::close() {
  if (!file_.is_open()) return;
  file_ << "\n]}\n";
  const bool is_whole = static_cast<bool>(file_.flush());
  file_.close();
  if (is_whole) {
    log_info("the trace is in {}", path_);
  } else {
    log_error("the trace {} could not be written to its end", path_);
  }
}

void StepTrace::name_thread(int thread, const std::string& name) {
  file_ << (has_events_ ? ",\n" : "\n")
        << fmt::format(R"({{"name":"thread_name","ph":"M","pid":1,"tid":{},"args":{{"name":"{}"}}}})", thread,
                       name);
  has_events_ = true;
}

void StepTrace::write(int thread, std::string_view name, std::string_view kind, Time begin, Time end,
                      std::string_view args) {
  if (end < begin) end = begin;
  file_ << fmt::format(
      ",\n{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}{}}}",
      to_text(Json(std::string(name))), kind, thread, microseconds(begin - start_), microseconds(end - begin),
      args);
}

void StepTrace::add(std::string_view phase, Time begin, Time end, Row row) {
  const std::lock_guard lock(mutex_);
  if (file_.is_open()) write(row == Row::kEngine ? kEngineThread : kBesideThread, phase, "phase", begin, end);
}

void StepTrace::add_step(uint64_t step, Time begin, Time end, const StepTimes& times,
                         const std::vector<std::vector<RankSpan>>& ranks) {
  const std::lock_guard lock(mutex_);
  if (!file_.is_open()) return;
  const auto ticks = [](double seconds) {
    return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds));
  };
  const auto uploaded = begin + ticks(times.upload), sampling = end - ticks(times.sample);
  const std::string args = fmt::format(R"(,"args":{{"step":{}}})", step);
  write(kEngineThread, "upload", "phase", begin, uploaded, args);
  write(kEngineThread, "forward", "phase", uploaded, sampling, args);
  write(kEngineThread, "sample", "phase", sampling, end, args);
  for (; ranks_named_ < ranks.size(); ++ranks_named_)
    name_thread(static_cast<int>(ranks_named_) + 1, fmt::format("rank {}", ranks_named_));
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const RankSpan& span : ranks[rank])
      write(static_cast<int>(rank) + 1, span.what, span.what == "samples" ? "phase" : kind_of(span.what),
            span.begin, span.end, args);
  if (--steps_left_ == 0) close();
}

}  // namespace lockstep::runtime
