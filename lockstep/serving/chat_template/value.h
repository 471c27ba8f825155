#pragma once
// What a template computes with: Python's values as far as chat templates meet them. Containers and texts are
// immutable and shared; only namespaces, loops and iterators change, and they belong to one rendering. Made
// through Heap.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::serving::jinja {

__extension__ typedef __int128 Integer;  // Python's are unbounded; beyond 128 bits is an error here

struct Env;              // interpreter.h
struct Loop;             // loop.h
struct MacroDefinition;  // syntax.h
struct FunctionEntry;    // functions.h
struct MethodEntry;      // methods.h
class Value;
class Dict;
using Values = std::vector<Value>;
class SharedValues;

// Bytes that a rendering holds at this moment.
struct MemoryMeter {
  size_t live_bytes = 0;
  size_t max_bytes = 0;
};

// A part of the meter that goes back when its owner dies. Constants of the template have none.
class Charge {
 public:
  Charge() = default;
  Charge(MemoryMeter& meter, size_t bytes) : meter_(&meter), bytes_(bytes) { meter.live_bytes += bytes; }
  Charge(Charge&& other) noexcept
      : meter_(std::exchange(other.meter_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() {
    if (meter_ != nullptr) meter_->live_bytes -= bytes_;
  }
  void grow(size_t bytes) {
    bytes_ += bytes;
    meter_->live_bytes += bytes;
  }

 private:
  MemoryMeter* meter_ = nullptr;
  size_t bytes_ = 0;
};

// Why something is undefined, for the message if it is used after all.
struct UndefinedReason {
  enum class Form : uint8_t { kName, kAttribute, kElement, kSentence };
  Form form = Form::kName;
  std::string name;     // as the message prints it; of kSentence the whole message
  std::string subject;  // whose attribute or element: "dict object"
  Charge charge;
  std::string message() const;
};

struct Text {
  std::string bytes;  // valid UTF-8
  size_t num_chars = 0;
  bool is_markup = false;  // of the filters safe and escape: + escapes what is added
  Charge charge;
  bool is_ascii() const { return num_chars == bytes.size(); }
};

struct Sequence {
  Values items;
  int height = 1;  // one more than that of the deepest item
  Charge charge;
};
struct List : Sequence {};
struct Tuple : Sequence {
  bool is_group = false;  // of the filter groupby: its items are also .grouper and .list
};

struct Range {
  Integer start = 0, stop = 0, step = 1;
  Integer size() const;
};

enum class ViewOf : uint8_t { kKeys, kValues, kItems };
struct DictView {
  std::shared_ptr<const Dict> dict;
  ViewOf part = ViewOf::kKeys;
};

// A generator: its items can be taken once. An error while they were made waits behind the last item.
struct Iterator {
  Values items;
  size_t next = 0;
  std::string failure;
  int height = 1;
  Charge charge;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Charge charge;
};

struct Macro {
  const MacroDefinition* definition = nullptr;
  Env* env = nullptr;  // where it was defined
};

struct BoundMethod;

enum class Kind : uint8_t {
  kMissing,  // no value yet: a slot before its assignment, an argument that was not given
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,
  kIterator,
  kNamespace,
  kLoop,
  kMacro,
  kMethod,
  kFunction,
};

class Value {
 public:
  struct None {};
  using Variant =
      std::variant<std::monostate, std::shared_ptr<const UndefinedReason>, None, bool, Integer, double,
                   std::shared_ptr<const Text>, std::shared_ptr<const List>, std::shared_ptr<const Tuple>,
                   std::shared_ptr<const Dict>, std::shared_ptr<const Range>, std::shared_ptr<const DictView>,
                   std::shared_ptr<Iterator>, std::shared_ptr<Namespace>, std::shared_ptr<Loop>,
                   std::shared_ptr<const Macro>, std::shared_ptr<const BoundMethod>, const FunctionEntry*>;

  Value() = default;
  explicit Value(Variant content) : content_(std::move(content)) {}
  static Value none() { return Value(Variant(None{})); }
  static Value boolean(bool value) { return Value(Variant(std::in_place_index<3>, value)); }
  static Value integer(Integer value) { return Value(Variant(std::in_place_index<4>, value)); }
  static Value real(double value) { return Value(Variant(std::in_place_index<5>, value)); }

  Kind kind() const { return static_cast<Kind>(content_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }
  bool is_number() const { return is_integral() || is(Kind::kFloat); }
  bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }

  // Each wants the kind that it is named for; to_integer() also takes a bool.
  bool to_bool() const { return std::get<bool>(content_); }
  Integer to_integer() const { return is(Kind::kBool) ? Integer{to_bool()} : std::get<Integer>(content_); }
  double to_real() const { return std::get<double>(content_); }
  const UndefinedReason& undefined_reason() const { return *ref<std::shared_ptr<const UndefinedReason>>(); }
  const Text& text() const { return *ref<std::shared_ptr<const Text>>(); }
  std::string_view view() const { return text().bytes; }
  const Sequence& sequence() const;
  const Values& items() const { return sequence().items; }

  template <class Pointer>
  const Pointer& ref() const {
    return std::get<Pointer>(content_);
  }
  const std::shared_ptr<const Dict>& dict_ref() const { return ref<std::shared_ptr<const Dict>>(); }
  const Dict& dict() const { return *dict_ref(); }

  int height() const;            // of nested containers; 0 for others
  const void* identity() const;  // the shared object, or nullptr for what is held by value

 private:
  Variant content_;
};

// Values that somebody else may own too. It is a range itself, so that `for (x : iterate(...))` keeps it
// alive.
class SharedValues {
 public:
  SharedValues() : values_(std::make_shared<const Values>()) {}
  explicit SharedValues(std::shared_ptr<const Values> values) : values_(std::move(values)) {}

  auto begin() const { return values_->begin(); }
  auto end() const { return values_->end(); }
  size_t size() const { return values_->size(); }
  const Value& operator[](size_t idx) const { return (*values_)[idx]; }
  const Values& all() const& { return *values_; }
  Values all() && { return *values_; }

 private:
  std::shared_ptr<const Values> values_;
};

struct BoundMethod {
  Value self;
  const MethodEntry* method = nullptr;
};

// Python's type(value).__name__.
std::string_view type_name(const Value& value);

}  // namespace lockstep::serving::jinja
