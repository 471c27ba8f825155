#pragma once
// The process's log: one line a message on standard error. The only mutable state at namespace scope in
// Lockstep. Never log a key, a prompt or a reply above kDebug.
#include <fmt/format.h>

#include <string_view>

namespace lockstep {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);
void log_line(LogLevel level, std::string_view message);

template <class... Args>
void log_debug(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::kDebug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> f, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace lockstep
