#pragma once
// What `lockstep bench` sees of each request to an endpoint, and what follows from all of them. No network.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/cli/commands.h"

namespace lockstep::cli {

// Times in seconds since the load began.
struct RequestRecord {
  double planned = 0, sent = 0, ended = 0;
  std::vector<double> text_times;                                  // of each event that brought text
  int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;  // as the server counts them
  int status = 0;
  std::string error;  // empty: it came to its end

  bool ok() const { return error.empty() && !text_times.empty(); }
  // Where arrivals are planned what waited in the client counts as well: a server that is too slow would
  // otherwise slow down its own measurement.
  enum class Since : uint8_t { kSent, kPlanned };
  double begin(Since since) const { return since == Since::kSent ? sent : planned; }
  double ttft(Since since) const { return text_times.front() - begin(since); }
  double e2e(Since since) const { return ended - begin(since); }
  // Of each token after the first; nothing with one.
  std::optional<double> tpot() const;
};

// The server-sent events of one answer.
class AnswerReader {
 public:
  explicit AnswerReader(RequestRecord& record) : record_(record) {}
  void read(std::string_view bytes, double now);
  // The answer is over; `error` is the connection's.
  void finish(int status, const std::string& error, double now);

 private:
  void read_event(std::string_view data, double now);

  RequestRecord& record_;
  std::string waiting_;
  bool is_done_ = false, is_in_long_line_ = false;
};

struct Spread {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Spread spread_of(std::vector<double> values);

// The whole measurement as JSON: what was sent, rates, spreads of latencies in milliseconds, goodput.
Json summary_of(const EndpointBench& bench, const std::string& source,
                const std::vector<RequestRecord>& records);

std::string summary_table(const Json& summary);

}  // namespace lockstep::cli
