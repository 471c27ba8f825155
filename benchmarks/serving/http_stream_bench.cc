// What the way from an engine's tokens to a client's bytes costs: an engine that gives every running request
// one token a step, as fast as it is asked to, behind the whole server; clients that only count bytes. And
// what 2,000 connections that wait cost in memory.
#include <benchmark/benchmark.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/runtime/engine.h"
#include "lockstep/serving/server.h"
#include "tests/source_dir.h"

namespace lockstep::serving {
namespace {

const std::string kModel = std::string(LOCKSTEP_SOURCE_DIR) + "/models/tutor-deepseek-v3";

// Steps as a real engine's: every running request gets a token, on one thread.
class SteppingEngine : public runtime::Engine {
 public:
  explicit SteppingEngine(std::vector<int32_t> script) : script_(std::move(script)) {
    info_ = {
        .name = "tutor", .directory = kModel, .family = "deepseek_v3", .vocab = 1024, .context_length = 4096};
    info_.eos_token_ids = {964};
    thread_ = std::thread([this] { run(); });
  }
  ~SteppingEngine() override {
    is_stopping_ = true;
    changed_.notify_all();
    thread_.join();
  }

  Result<runtime::RequestId> submit(runtime::Request request, runtime::EventSink sink) override {
    const std::lock_guard lock(mutex_);
    running_.push_back({++last_id_, request.max_new_tokens, 0, std::move(sink)});
    changed_.notify_all();
    return last_id_;
  }
  void cancel(runtime::RequestId /*id*/) override {}
  void clear_cache() override {}
  const runtime::ModelInfo& model() const override { return info_; }
  runtime::EngineStats stats() const override {
    runtime::EngineStats stats;
    stats.replicas.resize(1);
    stats.num_ranks = 1;
    return stats;
  }
  runtime::Health health() const override { return {.serving = true, .reason = {}}; }
  std::string plan_text() const override { return ""; }
  Json plan_json() const override { return Json::object(); }
  void drain(double /*seconds*/) override {}

  // Nothing is decoded before so many requests are there.
  void wait_for(size_t requests) {
    const std::lock_guard lock(mutex_);
    least_ = requests;
    changed_.notify_all();
  }

 private:
  struct Running {
    runtime::RequestId id;
    int wanted, given;
    runtime::EventSink sink;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      if (running_.empty() || (running_.size() < least_ && running_.front().given == 0)) {
        changed_.wait_for(lock, std::chrono::milliseconds(20));
        continue;
      }
      for (Running& one : running_) {
        runtime::Event event{.id = one.id};
        event.tokens.push_back({.token_id = script_[static_cast<size_t>(one.given++) % script_.size()]});
        if (one.given == one.wanted) event.finish = runtime::FinishReason::kLength;
        one.sink(event);
      }
      std::erase_if(running_, [](const Running& one) { return one.given == one.wanted; });
    }
  }

  const std::vector<int32_t> script_;
  runtime::ModelInfo info_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Running> running_;
  runtime::RequestId last_id_ = 0;
  size_t least_ = 1;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

class Serving {
 public:
  explicit Serving(int max_connections = 4096)
      : engine_(Tokenizer::load(kModel)->encode("Eve has 12 apples and gives 5 of them away, so 7 are left. ",
                                                AddedTokens::kParse)) {
    set_log_level(LogLevel::kWarning);
    ServeOptions options;
    options.port = 0;
    options.max_connections = max_connections;
    auto made = ApiServer::make(engine_, options);
    if (!made) throw std::runtime_error(made.error().message);
    server_ = std::move(*made);
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Serving() {
    server_->stop();
    thread_.join();
  }
  SteppingEngine& engine() { return engine_; }

  int connect() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("cannot connect");
    return fd;
  }

 private:
  SteppingEngine engine_;
  std::unique_ptr<ApiServer> server_;
  std::thread thread_;
};

void send_all(int fd, const std::string& bytes) {
  if (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("cannot send");
}

struct Endpoint {
  const char* path;
  const char* body;  // without its number of tokens and the closing brace
  const char* limit;
};
constexpr Endpoint kEndpoints[] = {
    {"/v1/completions", R"({"prompt":"7","stream":true,"ignore_eos":true,)", "max_tokens"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"user","content":"7"}],"stream":true,"ignore_eos":true,)", "max_tokens"},
    {"/v1/responses", R"({"input":"7","stream":true,"store":false,"ignore_eos":true,)", "max_output_tokens"},
    {"/v1/messages", R"({"messages":[{"role":"user","content":"7"}],"stream":true,)", "max_tokens"}};

std::string request_for(const Endpoint& endpoint, int tokens) {
  const std::string body = fmt::format("{}\"{}\":{}}}", endpoint.body, endpoint.limit, tokens);
  return fmt::format("POST {} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{}", endpoint.path,
                     body.size(), body);
}

// Reads until each stream's last chunk has come; the number of bytes.
size_t read_streams(const std::vector<int>& fds) {
  std::vector<pollfd> open;
  for (const int fd : fds) open.push_back({fd, POLLIN, 0});
  std::vector<std::string> ends(fds.size());
  std::vector<char> buffer(size_t{1} << 16);
  size_t num_bytes = 0, num_open = fds.size();
  while (num_open > 0) {
    if (::poll(open.data(), open.size(), 20000) <= 0) throw std::runtime_error("nothing comes any more");
    for (size_t i = 0; i < open.size(); ++i) {
      if ((open[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      const ssize_t n = ::recv(open[i].fd, buffer.data(), buffer.size(), 0);
      if (n <= 0) throw std::runtime_error("a stream broke off");
      num_bytes += static_cast<size_t>(n);
      ends[i].append(buffer.data(), static_cast<size_t>(n));
      if (ends[i].size() > 5) ends[i].erase(0, ends[i].size() - 5);
      if (ends[i] != "0\r\n\r\n") continue;
      open[i].fd = -1;  // poll() passes it over
      --num_open;
    }
  }
  return num_bytes;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// (endpoint, streams at once, tokens of each)
void streamed_tokens(benchmark::State& state) {
  const Endpoint& endpoint = kEndpoints[static_cast<size_t>(state.range(0))];
  const auto num_streams = static_cast<size_t>(state.range(1));
  const int tokens = static_cast<int>(state.range(2));
  Serving serving;
  serving.engine().wait_for(num_streams);
  std::vector<int> fds;
  for (size_t i = 0; i < num_streams; ++i) fds.push_back(serving.connect());
  const std::string request = request_for(endpoint, tokens);
  size_t num_bytes = 0;
  double cpu = 0;
  for (auto _ : state) {
    const double cpu_before = cpu_seconds();
    for (const int fd : fds) send_all(fd, request);
    num_bytes += read_streams(fds);
    cpu += cpu_seconds() - cpu_before;
  }
  for (const int fd : fds) ::close(fd);
  const double total = static_cast<double>(state.iterations()) * static_cast<double>(num_streams) * tokens;
  state.SetLabel(endpoint.path);
  state.counters["tokens_per_second"] = benchmark::Counter(total, benchmark::Counter::kIsRate);
  state.counters["bytes_per_token"] = static_cast<double>(num_bytes) / total;
  state.counters["cpu_us_per_token"] = cpu * 1e6 / total;  // engine, server and client together
}
BENCHMARK(streamed_tokens)
    ->ArgsProduct({{0, 1, 2, 3}, {64, 256}, {200}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

double resident_mb() {
  std::ifstream status("/proc/self/statm");
  double size = 0, resident = 0;
  status >> size >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

// Connections that had an answer and wait for their next request; all of the process is counted.
void idle_connections(benchmark::State& state) {
  const auto wanted = static_cast<size_t>(state.range(0));
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  for (auto _ : state) {
    Serving serving;
    const double before = resident_mb();
    std::vector<int> fds;
    std::vector<char> buffer(4096);
    for (size_t i = 0; i < wanted; ++i) {
      fds.push_back(serving.connect());
      send_all(fds.back(), "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n");
      if (::recv(fds.back(), buffer.data(), buffer.size(), 0) <= 0) throw std::runtime_error("no answer");
    }
    state.counters["process_mb"] = resident_mb();
    state.counters["kb_per_connection"] = (resident_mb() - before) * 1e3 / static_cast<double>(wanted);
    for (const int fd : fds) ::close(fd);
  }
}
BENCHMARK(idle_connections)->Arg(2000)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace lockstep::serving
