#pragma once
// Numbers and arrays as bytes on the way between processes of the same build (joining compares builds), so
// the layout is the machine's own. A reader checks every length before it reads; who asks for more than there
// is gets WrongBytes, which says where.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/base/check.h"

namespace lockstep::collectives {

struct WrongBytes : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Arrays start at multiples of this, so that they can be read where they lie.
inline constexpr size_t kArrayAlignment = 8;

class ByteWriter {
 public:
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void put(T value) {
    copy(std::as_bytes(std::span<const T>(&value, 1)));
  }
  void put_text(std::string_view text) { put_array(std::span<const char>(text.data(), text.size())); }
  template <class T>
  void put_array(std::span<const T> values) {
    put<uint64_t>(values.size());
    append(values);
  }
  // Without the length, which the reader knows.
  template <class T>
  void append(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    align();
    copy(std::as_bytes(values));
  }
  void align() {
    const size_t padding = (kArrayAlignment - bytes_.size() % kArrayAlignment) % kArrayAlignment;
    bytes_.append(padding, '\0');
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span<const char>(bytes_)); }

 private:
  void copy(std::span<const std::byte> from) {
    bytes_.append(reinterpret_cast<const char*>(from.data()), from.size());
  }
  std::string bytes_;
};

class ByteReader {
 public:
  // `bytes` starts at a multiple of kArrayAlignment in memory.
  explicit ByteReader(std::span<std::byte> bytes) : bytes_(bytes) {}

  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string get_text(size_t most) {
    const std::span<char> text = get_array<char>(most);
    return {text.data(), text.size()};
  }
  // Of a length that comes first and is at most `most`.
  template <class T>
  std::span<T> get_array(size_t most) {
    const auto size = get<uint64_t>();
    if (size > most)
      throw WrongBytes(
          fmt::format("an array of {} at byte {} where at most {} are allowed", size, at_, most));
    return values<T>(size);
  }
  // Views of the bytes themselves, of a length that is known.
  template <class T>
  std::span<T> values(size_t size) {
    align();
    if (size > (bytes_.size() - at_) / sizeof(T)) throw too_short(size * sizeof(T));
    return {reinterpret_cast<T*>(take(size * sizeof(T)).data()), size};
  }
  void align() {
    const size_t rest = at_ % kArrayAlignment;
    if (rest != 0) take(kArrayAlignment - rest);
  }
  void expect_end() const {
    if (at_ != bytes_.size())
      throw WrongBytes(fmt::format("{} bytes too many after byte {}", bytes_.size() - at_, at_));
  }

 private:
  std::span<std::byte> take(size_t size) {
    if (size > bytes_.size() - at_) throw too_short(size);
    const auto taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }
  WrongBytes too_short(size_t size) const {
    return WrongBytes(fmt::format("{} bytes wanted at byte {} of {}", size, at_, bytes_.size()));
  }

  std::span<std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace lockstep::collectives
