#pragma once
// Splits a reply into reasoning and the rest at <think> and </think>.
//
//   Whether the output begins inside reasoning is decided by the prompt (starts_inside()): templates may
//   print the opening tag themselves. Otherwise <think> opens reasoning only before any other text. Reasoning
//   ends at the first </think>; a reply that ends before it is all reasoning. The line feeds next to the tags
//   are part of the frame and are left out: those after <think>, before </think> and after </think>. Every
//   other character arrives exactly once. Tool markers inside reasoning are no calls. Think tags after
//   reasoning, or without it, are ordinary text.
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/serving/reply/marker_scanner.h"

namespace lockstep::serving::reasoning {

enum class Format : unsigned char {
  kNone,
  kThinkTags,
  kHarmony,  // the channels of gpt-oss: harmony.h
};
std::string_view name_of(Format format);
std::optional<Format> format_named(std::string_view name);
// All that format_named() knows: "none", "think", "gpt-oss", and what others call these.
std::vector<std::string_view> format_names();

// The markers that the format's splitter wants to be told of, token_id left empty.
std::vector<Marker> markers_of(Format format);

enum class Place : unsigned char { kInside, kOutside };

inline constexpr std::string_view kOpenTag = "<think>";
inline constexpr std::string_view kCloseTag = "</think>";

// kInside when the prompt ends with an open think tag (and perhaps white space).
Place starts_inside(std::string_view prompt);

struct Split {
  TracedText reasoning;
  std::vector<Lexeme> rest;  // for tool parsing, in order
};

class Splitter {
 public:
  virtual ~Splitter() = default;
  virtual Split push(Lexeme lexeme) = 0;
  virtual Split finish() = 0;
  // Whether reasoning is being written.
  virtual bool inside() const = 0;
};

std::unique_ptr<Splitter> make_splitter(Format format, Place start);

// kNone and kThinkTags.
class ReasoningSplitter : public Splitter {
 public:
  ReasoningSplitter(Format format, Place start);

  Split push(Lexeme lexeme) override;
  Split finish() override;

  bool inside() const override { return state_ == State::kReasoning; }

 private:
  enum class State : unsigned char {
    kStart,      // nothing but line feeds so far: <think> may come
    kReasoning,  // inside
    kAfter,      // just behind </think>: line feeds are frame
    kRest,
  };
  Split push_at_start(Lexeme lexeme);
  Split push_inside(Lexeme lexeme);
  Split push_after(Lexeme lexeme);
  void enter_reasoning();

  State state_;
  bool at_first_character_ = true;  // inside: only frame so far
  TracedText held_;                 // kStart: leading line feeds; kReasoning: trailing ones
};

}  // namespace lockstep::serving::reasoning
