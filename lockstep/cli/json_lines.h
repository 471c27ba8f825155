#pragma once
// Commands that read JSON lines and answer each with a JSON line at once, so that a program may talk to them
// over two pipes. A line that is wrong is answered with {"error", "line"} and does not end the command.
#include <cstddef>
#include <cstdio>
#include <functional>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {

inline constexpr size_t kMaxLineBytes = size_t{64} << 20;

// Calls `answer` with each line's object. An error whose field is kAnswered is an answer like any other; the
// exit code says whether a line was wrong in another way. Empty lines are passed over.
inline constexpr const char* kAnswered = "answered";
int answer_lines(std::FILE* in, std::FILE* out, const std::function<Result<Json>(const Json& line)>& answer,
                 size_t max_line_bytes = kMaxLineBytes);

}  // namespace lockstep::cli
