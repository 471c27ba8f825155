#pragma once
// Failure in two tiers, used by every room.
//
//   Result<T>         what a user or a file can cause: the caller must look at it. Error says what to change.
//   LOCKSTEP_CHECK_*  what only a bug can cause: prints both values and the place and throws Fatal, which is
//                     caught in two places only, the engine's threads and main().
#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace lockstep {

enum class ErrorCode : unsigned char {
  kInvalidArgument,  // the caller's value is wrong; a retry cannot help
  kNotFound,         // a file, a model, a request that is not there
  kUnavailable,      // full, draining or failed; a retry may help
  kInternal,         // a fault of ours
  kAborted,          // given up for all who took part, who are waited for: the same call again
};

struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;  // one sentence that names the value and the way out
  std::string field;    // the flag, JSON parameter or tensor that is meant; empty when none
};

template <class... Args>
Error invalid_argument(std::string field, fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...), std::move(field)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a function returns its value or its error as they are.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  // NOLINTEND(google-explicit-constructor)

  explicit operator bool() const { return state_.index() == 0; }
  bool ok() const { return state_.index() == 0; }

  // Callers test ok() first; value() of an error throws std::runtime_error with its message.
  T& value() & { return require(), *std::get_if<0>(&state_); }
  const T& value() const& { return require(), *std::get_if<0>(&state_); }
  T&& value() && { return require(), std::move(*std::get_if<0>(&state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T& operator*() const& { return value(); }

  const Error& error() const { return std::get<1>(state_); }

 private:
  void require() const {
    if (!ok()) throw std::runtime_error(std::get<1>(state_).message);
  }
  std::variant<T, Error> state_;
};

// A Result without a value.
struct Done {};
using Status = Result<Done>;

// A broken invariant. The message holds place, expression and both values.
struct Fatal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void fail_check(const char* file, int line, std::string_view what);

template <class A, class B>
[[noreturn]] void fail_check_op(const char* file, int line, std::string_view expression, const A& a,
                                const B& b) {
  fail_check(file, line, fmt::format("{} ({} against {})", expression, a, b));
}

#define LOCKSTEP_CHECK_OP(a, op, b)                                                             \
  do {                                                                                          \
    const auto& lockstep_a = (a);                                                               \
    const auto& lockstep_b = (b);                                                               \
    if (!(lockstep_a op lockstep_b))                                                            \
      ::lockstep::fail_check_op(__FILE__, __LINE__, #a " " #op " " #b, lockstep_a, lockstep_b); \
  } while (0)
#define LOCKSTEP_CHECK_EQ(a, b) LOCKSTEP_CHECK_OP(a, ==, b)
#define LOCKSTEP_CHECK_LE(a, b) LOCKSTEP_CHECK_OP(a, <=, b)
#define LOCKSTEP_CHECK_LT(a, b) LOCKSTEP_CHECK_OP(a, <, b)
#define LOCKSTEP_CHECK_GE(a, b) LOCKSTEP_CHECK_OP(a, >=, b)
// For conditions without two values; the message must carry the numbers.
#define LOCKSTEP_CHECK(condition, ...)                                                                      \
  do {                                                                                                      \
    if (!(condition)) ::lockstep::fail_check(__FILE__, __LINE__, fmt::format(#condition ": " __VA_ARGS__)); \
  } while (0)

}  // namespace lockstep
