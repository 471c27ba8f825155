#pragma once
// How the log's lines look, and lines with fields of their own. For programs that read logs, one JSON object
// a line: {"time", "level", "message"} and the fields.
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/log.h"

namespace lockstep {

enum class LogFormat : unsigned char { kText, kJson };
void set_log_format(LogFormat format);

struct LogField {
  std::string name, value;
};
// As text: the message, then name=value for each field.
void log_fields(LogLevel level, std::string_view message, std::span<const LogField> fields);

}  // namespace lockstep
