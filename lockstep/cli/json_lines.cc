#include "lockstep/cli/json_lines.h"

#include <cstdint>
#include <string>

#include "lockstep/cli/commands.h"

namespace lockstep::cli {
namespace {

enum class Line : uint8_t { kWhole, kTooLong, kEnd };

// What is too long is read to its end and thrown away.
Line read_line(std::FILE* in, size_t max_bytes, std::string& line) {
  line.clear();
  bool is_too_long = false;
  int c = getc_unlocked(in);
  if (c == EOF) return Line::kEnd;
  for (; c != EOF && c != '\n'; c = getc_unlocked(in)) {
    is_too_long = is_too_long || line.size() == max_bytes;
    if (!is_too_long) line.push_back(static_cast<char>(c));
  }
  return is_too_long ? Line::kTooLong : Line::kWhole;
}

Result<Json> answer_to(const std::string& text, const std::function<Result<Json>(const Json& line)>& answer) {
  const auto line = parse_json(text);
  if (!line) return line.error();
  if (!line->is_object())
    return invalid_argument("line", "the line holds {}, not an object", line->type_name());
  return answer(*line);
}

}  // namespace

int answer_lines(std::FILE* in, std::FILE* out, const std::function<Result<Json>(const Json& line)>& answer,
                 size_t max_line_bytes) {
  bool all_good = true;
  std::string text;
  for (size_t number = 1;; ++number) {
    const Line end = read_line(in, max_line_bytes, text);
    if (end == Line::kEnd) break;
    if (end == Line::kWhole && text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<Json> result =
        end == Line::kTooLong
            ? invalid_argument("line", "the line has more than {} bytes, the limit", max_line_bytes)
            : answer_to(text, answer);
    all_good = all_good && result.ok();
    const Json reply = result ? *result : Json{{"error", result.error().message}, {"line", number}};
    text = to_text(reply) + '\n';
    if (std::fwrite(text.data(), 1, text.size(), out) != text.size() || std::fflush(out) != 0) return kFailed;
  }
  return all_good ? kOk : kFailed;
}

}  // namespace lockstep::cli
