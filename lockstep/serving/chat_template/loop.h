#pragma once
// The `loop` variable of a for: where it stands, what comes before and after, and what it needs to call
// itself.
#include <memory>
#include <optional>

#include "lockstep/serving/chat_template/heap.h"
#include "lockstep/serving/chat_template/value.h"

namespace lockstep::serving::jinja {

struct ForStatement;

// Items one at a time: a loop with an `if` evaluates it only when the next item is asked for.
class ItemSource {
 public:
  virtual ~ItemSource() = default;
  virtual bool next(Value& item) = 0;  // false at the end
};

class ValuesSource final : public ItemSource {
 public:
  explicit ValuesSource(SharedValues items) : items_(std::move(items)) {}
  bool next(Value& item) override {
    if (next_ == items_.size()) return false;
    item = items_[next_++];
    return true;
  }

 private:
  SharedValues items_;
  size_t next_ = 0;
};

struct Loop {
  std::unique_ptr<ItemSource> source;  // null once the loop has ended
  std::optional<Integer> length;       // known when nothing is filtered, or once it was asked for
  Integer index0 = -1;
  int depth0 = 0;
  Value previous, current, following;  // following: looked at early; missing when it was not
  Value last_changed;                  // arguments of the last changed()
  const ForStatement* statement = nullptr;
  Env* env = nullptr;  // where the for stands, for loop(...)

  bool advance();  // to the next item, which is then `current`
  bool peek();     // whether there is a next item
  Integer find_length();
  void end();  // lets go of all items, so that a loop which a template keeps cannot keep itself
};

// loop.name, or missing where there is no such attribute.
Value loop_attribute(Heap& heap, const Value& loop, std::string_view name);

}  // namespace lockstep::serving::jinja
