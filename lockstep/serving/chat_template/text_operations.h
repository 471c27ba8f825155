#pragma once
// What str methods and filters both do to a text, under the heap's budget.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

enum class Side : uint8_t { kLeft, kRight, kBoth };
enum class LineEnds : uint8_t { kDrop, kKeep };

// Without `chars`: white space.
std::string_view strip(Heap& heap, std::string_view text, std::optional<std::string_view> chars, Side side);
// At most `max_count` times where that is not negative.
std::string replace(Heap& heap, std::string_view text, std::string_view old_part, std::string_view new_part,
                    Integer max_count);
// Without a separator: at runs of white space, none at the ends. From the right where Side is kRight.
std::vector<std::string_view> split(Heap& heap, std::string_view text,
                                    std::optional<std::string_view> separator, Integer max_splits, Side from);
std::vector<std::string_view> split_lines(Heap& heap, std::string_view text, LineEnds ends);
// `fill` is one character.
std::string justify(Heap& heap, std::string_view text, Integer width, std::string_view fill, Side text_side);
// reversed by characters
std::string reverse(Heap& heap, std::string_view text);

}  // namespace lockstep::serving::jinja
