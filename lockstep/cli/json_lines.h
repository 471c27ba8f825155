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

// Calls `answer` with each line's object. The exit code is kFailed where a line had an error for an answer.
// Empty lines are passed over.
int answer_lines(std::FILE* in, std::FILE* out, const std::function<Result<Json>(const Json& line)>& answer,
                 size_t max_line_bytes = kMaxLineBytes);

}  // namespace lockstep::cli
