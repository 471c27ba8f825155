#pragma once
// One rendering's budget and the maker of its values: every evaluation takes steps from it and every value is
// charged to its memory meter, so a hostile template ends in a Failure. Also knows the line that is being
// evaluated.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/serving/chat_template/chat_template.h"
#include "lockstep/serving/chat_template/dict.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

// Thrown inside the interpreter and the parser; ChatTemplate turns it into an Error.
struct Failure {
  enum class Cause : uint8_t {
    kTemplate,
    kRaised
  };  // kRaised: raise_exception(), the message is the template's
  std::string message;
  int line = 0;
  Cause cause = Cause::kTemplate;
};

// Of lists in lists: bounds the stack that printing, comparing and destroying values take. JSON documents
// stay below.
inline constexpr int kMaxValueDepth = 256;

class Heap {
 public:
  explicit Heap(const RenderLimits& limits);
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  int line = 0;  // of the node that is being evaluated
  const RenderLimits& limits() const { return limits_; }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Failure{fmt::format(format, std::forward<Args>(args)...), line};
  }
  [[noreturn]] void fail_undefined(const Value& undefined) const;

  void step(uint64_t count = 1) {
    num_steps_ += count;
    if (num_steps_ > limits_.max_steps) fail_steps();
  }
  // Steps for handling so many bytes.
  void work(size_t num_bytes) { step(num_bytes / 64); }
  // Fails unless so many bytes more may live.
  void require_room(size_t num_bytes) const {
    if (num_bytes > meter_.max_bytes || meter_.live_bytes > meter_.max_bytes - num_bytes)
      fail_memory(num_bytes);
  }
  // For `count` things of `each` bytes, without overflow.
  void require_room(Integer count, size_t each) const;
  Charge charge(size_t num_bytes);

  Value text(std::string bytes);
  Value text(std::string_view bytes) { return text(std::string(bytes)); }
  Value text(const char* bytes) { return text(std::string(bytes)); }
  Value text_like(const Value& original, std::string bytes);  // markup if the original is
  Value markup(std::string bytes);
  Value list(Values items);
  Value tuple(Values items);
  Value group(Value grouper, Value items);  // a row of groupby
  Value dict(std::vector<Dict::Entry> entries);
  Value range(Range range) const;
  Value view(const Value& dict, ViewOf part);
  Value iterator(Values items, std::string failure = {});
  Value new_namespace(std::vector<std::pair<std::string, Value>> attributes);
  Value method(const Value& self, const MethodEntry& entry);

  Value undefined_name(std::string_view name);
  Value undefined_attribute(const Value& object, std::string_view name);
  Value undefined_element(const Value& object, const Value& key);
  Value undefined_hint(std::string message);

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_memory(size_t num_bytes) const;
  Value make_text(std::string bytes, bool is_markup);
  Value undefined(UndefinedReason::Form form, std::string name, std::string subject);
  void require_height(int height) const;

  RenderLimits limits_;
  MemoryMeter meter_;
  uint64_t num_steps_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;  // they can hold themselves: emptied at the end
};

// A text that grows under the meter.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap), charge_(heap.charge(0)) {}
  TextBuilder& operator+=(std::string_view piece);
  TextBuilder& operator+=(char c) { return *this += std::string_view(&c, 1); }
  TextBuilder& repeat(std::string_view piece, Integer count);
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }
  Value finish() { return heap_.text(std::move(bytes_)); }
  Heap& heap() { return heap_; }

 private:
  Heap& heap_;
  std::string bytes_;
  Charge charge_;
};

// Values of the template's own constants: outside any rendering's meter.
Value constant_text(std::string bytes);

}  // namespace lockstep::serving::jinja
