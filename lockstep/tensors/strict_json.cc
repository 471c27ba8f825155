#include "lockstep/tensors/strict_json.h"

#include <cstddef>
#include <iterator>

#include "lockstep/base/json_fault.h"

namespace lockstep {
namespace {

// Walks over text and leaves its furthest place where the caller sees it: the parser tells no place to its
// reader.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* place, const char** furthest) : place_(place), furthest_(furthest) {}
  reference operator*() const { return *place_; }
  CountingIterator& operator++() {
    *furthest_ = ++place_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return place_ == other.place_; }

 private:
  const char* place_;
  const char** furthest_;
};

}  // namespace

Status StrictJsonReader::read(std::string_view text, uint64_t first_byte) {
  why_.clear();
  text_ = text;
  const char* furthest = text.data();
  const CountingIterator begin(text.data(), &furthest);
  const CountingIterator end(text.data() + text.size(), &furthest);
  if (Json::sax_parse(begin, end, static_cast<nlohmann::json_sax<Json>*>(this))) return Done{};
  return invalid_argument("", "{} (at byte {})", why_,
                          first_byte + static_cast<uint64_t>(furthest - text.data()));
}

bool StrictJsonReader::parse_error(std::size_t position, const std::string& token,
                                   const nlohmann::detail::exception& why) {
  const bool is_range = dynamic_cast<const Json::out_of_range*>(&why) != nullptr;
  return refuse(
      json_fault(text_, position, token, is_range ? JsonFault::kNumberTooLarge : JsonFault::kSyntax));
}

bool StrictJsonReader::refuse(std::string why) {
  why_ = std::move(why);
  return false;
}

}  // namespace lockstep
