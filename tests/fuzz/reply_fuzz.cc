// Any output of a model reads the same however it is cut into tokens, and no text is made up. The first byte
// picks options, the second the formats and how the text is cut.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/serving/reply_parser.h"

namespace {

using namespace lockstep::serving;

// All deltas as one text with a letter for each kind: equal exactly when the replies are.
std::string read(std::string_view output, ReplyOptions options, size_t step) {
  ReplyParser parser(std::move(options));
  std::string joined;
  DeltaKind last = DeltaKind::kCallEnd;
  size_t num_bytes = 0;
  const auto add = [&](const Deltas& deltas) {
    for (const Delta& delta : deltas) {
      const bool continues =
          delta.kind == last && delta.kind != DeltaKind::kCallBegin && delta.kind != DeltaKind::kCallEnd;
      if (!continues) joined += static_cast<char>('A' + static_cast<int>(delta.kind));
      joined += delta.text.text();
      num_bytes += delta.text.text().size();
      last = delta.kind;
    }
  };
  for (size_t at = 0; at < output.size(); at += step)
    add(parser.push(1000, TracedText(std::string(output.substr(at, step)))));
  add(parser.finish());
  // Calls in tags may be written anew as JSON; anything else is a part of the output.
  if (parser.num_calls() == 0 && num_bytes > output.size()) std::abort();
  return joined;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  ReplyOptions options;
  options.tools =
      static_cast<tool_parsing::Format>((data[0] % 4 + data[1] / 16 * 4) % tool_parsing::kNumFormats);
  options.tool_definitions = lockstep::Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  if ((data[0] & 4) != 0) {
    options.reasoning = reasoning::Format::kThinkTags;
    options.start = (data[0] & 8) != 0 ? reasoning::Place::kInside : reasoning::Place::kOutside;
  }
  if (options.tools == tool_parsing::Format::kHarmony) options.reasoning = reasoning::Format::kHarmony;
  options.markers = tool_parsing::markers_of(options.tools);
  for (Marker& marker : reasoning::markers_of(options.reasoning))
    options.markers.push_back(std::move(marker));
  if ((data[0] & 16) != 0) options.stop = {"stop", "op}", "\n\n"};
  if ((data[0] & 32) != 0) options.max_calls = 1;
  const std::string_view output(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (read(output, options, output.size() + 1) != read(output, options, 1 + data[1] % 16)) std::abort();
  return 0;
}
