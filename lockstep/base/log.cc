#include "lockstep/base/log.h"

#include <fmt/chrono.h>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/base/log_format.h"

namespace lockstep {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

constexpr const char* kTextPattern = "%Y-%m-%d %H:%M:%S.%e %^%l%$ %v";

// The process's log: what log.h says about state is about this.
struct Logger {
  Logger() : out(spdlog::stderr_color_mt("lockstep")) { out->set_pattern(kTextPattern); }
  std::shared_ptr<spdlog::logger> out;
  std::atomic<LogFormat> format{LogFormat::kText};
};

Logger& logger() {
  static const auto instance = std::make_unique<Logger>();
  return *instance;
}

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "info";
}

// What is not UTF-8 is replaced, so that every line is JSON.
std::string json_line(LogLevel level, std::string_view message, std::span<const LogField> fields) {
  const auto now = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto whole = std::chrono::time_point_cast<std::chrono::seconds>(now);
  Json line = {
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                           fmt::gmtime(std::chrono::system_clock::to_time_t(whole)), (now - whole).count())},
      {"level", name_of(level)},
      {"message", message}};
  for (const LogField& field : fields) line[field.name] = field.value;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void set_log_level(LogLevel level) { logger().out->set_level(to_spdlog(level)); }

void set_log_format(LogFormat format) {
  Logger& log = logger();
  log.format = format;
  log.out->set_pattern(format == LogFormat::kJson ? "%v" : kTextPattern);
}

void log_line(LogLevel level, std::string_view message) { log_fields(level, message, {}); }

void log_fields(LogLevel level, std::string_view message, std::span<const LogField> fields) {
  Logger& log = logger();
  if (!log.out->should_log(to_spdlog(level))) return;
  if (log.format == LogFormat::kJson)
    return log.out->log(to_spdlog(level), spdlog::string_view_t(json_line(level, message, fields)));
  std::string text(message);
  for (const LogField& field : fields) text += fmt::format(" {}={}", field.name, field.value);
  log.out->log(to_spdlog(level), spdlog::string_view_t(text));
}

}  // namespace lockstep
