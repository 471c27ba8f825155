#pragma once
// For tests of replies: an output text is cut into tokens in many ways and read by a ReplyParser into one
// Reply.
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/serving/reply_parser.h"

namespace lockstep::serving {

struct Call {
  std::string name, arguments;
  int num_ends = 0;
  bool operator==(const Call&) const = default;
};

struct Reply {
  std::string reasoning, content;
  std::vector<Call> calls;
  bool operator==(const Reply&) const = default;
};

inline void add(const Deltas& deltas, Reply& reply) {
  for (const Delta& delta : deltas) {
    const auto call_idx = static_cast<size_t>(delta.call_idx);
    switch (delta.kind) {
      case DeltaKind::kReasoning:
        reply.reasoning += delta.text.text();
        break;
      case DeltaKind::kContent:
        reply.content += delta.text.text();
        break;
      case DeltaKind::kCallBegin:
        if (call_idx != reply.calls.size()) throw std::logic_error("calls begin out of order");
        reply.calls.push_back({delta.text.text(), ""});
        break;
      case DeltaKind::kCallArguments:
        reply.calls.at(call_idx).arguments += delta.text.text();
        break;
      case DeltaKind::kCallEnd:
        ++reply.calls.at(call_idx).num_ends;
        break;
    }
  }
}

// Whether the tokenizer holds the markers as tokens of their own.
enum class MarkerTokens : unsigned char { kHeld, kNotHeld };

inline std::vector<Marker> markers_for(const ReplyOptions& options, MarkerTokens tokens) {
  std::vector<Marker> markers = tool_parsing::markers_of(options.tools);
  for (Marker& marker : reasoning::markers_of(options.reasoning)) markers.push_back(std::move(marker));
  if (tokens == MarkerTokens::kHeld)
    for (size_t i = 0; i < markers.size(); ++i) markers[i].token_id = static_cast<int32_t>(i);
  return markers;
}

struct Piece {
  int32_t token_id;
  std::string text;
};

// Cuts `output` where `next_length` says; markers that are tokens stay whole.
template <class NextLength>
std::vector<Piece> cut(std::string_view output, const std::vector<Marker>& markers, NextLength next_length) {
  std::vector<Piece> pieces;
  while (!output.empty()) {
    size_t until_marker = output.size();
    for (const Marker& marker : markers) {
      if (!marker.token_id) continue;
      const size_t place = output.find(marker.text);
      if (place == 0) pieces.push_back({*marker.token_id, marker.text});
      until_marker = std::min(until_marker, place);
    }
    if (until_marker == 0) {
      output.remove_prefix(pieces.back().text.size());
      continue;
    }
    const size_t length = std::min<size_t>(until_marker, next_length());
    pieces.push_back({1000, std::string(output.substr(0, length))});
    output.remove_prefix(length);
  }
  return pieces;
}

inline Reply read(const std::vector<Piece>& pieces, const ReplyOptions& options) {
  ReplyParser parser(options);
  Reply reply;
  for (const Piece& piece : pieces) add(parser.push(piece.token_id, TracedText(piece.text)), reply);
  add(parser.finish(), reply);
  return reply;
}

// Reads `output` cut in pieces of 1, 2, ... bytes, whole, at every single place, and in a hundred random
// ways, with and without marker tokens; all must give the same reply.
inline Reply read_in_every_way(std::string_view output, ReplyOptions options) {
  options.markers = markers_for(options, MarkerTokens::kHeld);
  const Reply whole = read(cut(output, options.markers, [&] { return output.size(); }), options);
  std::mt19937 random(20261130);
  for (const MarkerTokens tokens : {MarkerTokens::kHeld, MarkerTokens::kNotHeld}) {
    options.markers = markers_for(options, tokens);
    for (size_t way = 1; way <= 125; ++way) {
      const auto pieces =
          cut(output, options.markers, [&]() -> size_t { return way <= 25 ? way : 1 + random() % 12; });
      const Reply reply = read(pieces, options);
      if (!(reply == whole))
        throw std::logic_error("way " + std::to_string(way) + " of cutting changes the reply");
    }
    for (size_t place = 1; place < output.size(); ++place) {
      size_t left = place;  // bytes before the one cut
      const auto pieces =
          cut(output, options.markers, [&] { return left > 0 ? std::exchange(left, 0) : output.size(); });
      if (!(read(pieces, options) == whole))
        throw std::logic_error("a cut at byte " + std::to_string(place) + " changes the reply");
    }
  }
  return whole;
}

}  // namespace lockstep::serving
