#include "lockstep/serving/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "lockstep/serving/tokenizer/json_fields.h"
#include "lockstep/serving/tokenizer/regex_dialect.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

constexpr size_t kMaxPatternBytes = size_t{64} << 10;
constexpr size_t kJitStackStart = size_t{32} << 10;
constexpr size_t kJitStackLimit = size_t{8} << 20;
constexpr uint32_t kHeapLimitKib = 64 << 10;  // of the interpreter, where there is no machine code
// Starts times window: what one call into the library may look at.
constexpr size_t kStepsPerCall = size_t{1} << 18;
// Of a second attempt. The budget counts each eightfold: it costs more than a character that is looked at.
constexpr size_t kPatientSteps = size_t{1} << 20;
constexpr size_t kMaxPooled = 64;

template <auto free_function>
struct FreeWith {
  template <class T>
  void operator()(T* pointer) const {
    free_function(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, FreeWith<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, FreeWith<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, FreeWith<pcre2_jit_stack_free>>;

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Matcher::Scratch {
  MatchContext context;
  MatchData data;
  JitStack stack;
};

struct Pattern::Compiled {
  Code code;
  size_t window_bytes = kWindowBytes;
  std::mutex mutex;
  std::vector<std::unique_ptr<Matcher::Scratch>> pool;  // guarded by mutex
};

// The part of a text that one call may see, and where in it a match may start.
struct Pattern::Matcher::Window {
  Window(std::string_view text, size_t from, size_t num_bytes)
      : end(boundary_at_or_before(text, std::min(text.size(), from + num_bytes))),
        is_last(end == text.size()) {
    const size_t num_starts = std::max<size_t>(kStepsPerCall / num_bytes, 1);
    last_start = std::min(from + num_starts - 1, is_last ? end : end - 1);
  }
  size_t end;
  bool is_last;
  size_t last_start;
};

Pattern::Pattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Result<Pattern> Pattern::regex(std::string_view pattern, const std::string& field, size_t window_bytes) {
  auto translated = to_pcre2(pattern);
  if (!translated)
    return invalid_argument(field, "{}: the pattern is not supported: {}", field, translated.error().message);
  return compile(*translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, field, window_bytes);
}

Result<Pattern> Pattern::literal(std::string_view text, const std::string& field) {
  return compile(text, PCRE2_UTF | PCRE2_LITERAL, field, kWindowBytes);
}

Result<Pattern> Pattern::compile(std::string_view pattern, uint32_t options, const std::string& field,
                                 size_t window_bytes) {
  LOCKSTEP_CHECK_GE(window_bytes, size_t{8});
  if (pattern.size() > kMaxPatternBytes)
    return invalid_argument(field, "{}: the pattern has {} bytes, more than the limit of {}", field,
                            pattern.size(), kMaxPatternBytes);
  const bool is_literal = (options & PCRE2_LITERAL) != 0;
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  // Not auto-possessive: PCRE2 10.42 then misreads \p{L}+(?:\tb)?+a, and it gains nothing here.
  const uint32_t all_options =
      options | PCRE2_NO_UTF_CHECK | PCRE2_USE_OFFSET_LIMIT | (is_literal ? 0 : PCRE2_NO_AUTO_POSSESS);
  auto compiled = std::make_unique<Compiled>();
  compiled->code.reset(
      pcre2_compile(units(pattern), pattern.size(), all_options, &code, &offset, context.get()));
  if (!compiled->code)
    return invalid_argument(field, "{}: the pattern does not compile: {} at byte {} of {}", field,
                            message_of(code), offset, excerpt(std::string(pattern)));
  compiled->window_bytes = window_bytes;
  // Without machine code (no executable memory) the library interprets the pattern: slower, the same matches.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return Pattern(std::move(compiled));
}

Pattern::Matcher Pattern::matcher() const {
  std::unique_ptr<Matcher::Scratch> scratch;
  {
    const std::lock_guard lock(compiled_->mutex);
    if (!compiled_->pool.empty()) {
      scratch = std::move(compiled_->pool.back());
      compiled_->pool.pop_back();
    }
  }
  if (!scratch) {
    scratch = std::make_unique<Matcher::Scratch>();
    scratch->context.reset(pcre2_match_context_create(nullptr));
    scratch->data.reset(pcre2_match_data_create(1, nullptr));
    scratch->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr));
    pcre2_jit_stack_assign(scratch->context.get(), nullptr, scratch->stack.get());
    pcre2_set_heap_limit(scratch->context.get(), kHeapLimitKib);
  }
  return Matcher(*compiled_, std::move(scratch));
}

Pattern::Matcher::Matcher(Compiled& compiled, std::unique_ptr<Scratch> scratch)
    : compiled_(&compiled), scratch_(std::move(scratch)) {}
Pattern::Matcher::Matcher(Matcher&&) noexcept = default;

Pattern::Matcher::~Matcher() {
  if (!scratch_) return;
  const std::lock_guard lock(compiled_->mutex);
  if (compiled_->pool.size() < kMaxPooled) compiled_->pool.push_back(std::move(scratch_));
}

// One call into the library, with an attempt's steps limited.
int Pattern::Matcher::search(std::string_view text, size_t from, const Window& window, size_t max_steps) {
  const auto limit = static_cast<uint32_t>(std::min<size_t>(max_steps, UINT32_MAX));
  pcre2_match_context* context = scratch_->context.get();
  pcre2_set_match_limit(context, limit);
  pcre2_set_depth_limit(context, limit);
  pcre2_set_offset_limit(context, window.last_start);
  const uint32_t options = PCRE2_NO_UTF_CHECK | (window.is_last ? 0 : PCRE2_PARTIAL_HARD);
  return pcre2_match(compiled_->code.get(), units(text), window.end, from, options, scratch_->data.get(),
                     context);
}

// A window is enough when no attempt reached its end: the library then answers as it would with the whole
// text before it. Otherwise it says "partial" and sees a window of twice the size.
SearchEnd Pattern::Matcher::find_all(std::string_view text, WorkBudget& budget,
                                     std::vector<PatternMatch>& found) {
  const size_t base = compiled_->window_bytes;
  size_t from = 0;
  size_t window_bytes = base;
  size_t last_end = text.size() + 1;  // of the match before; no match ends there
  while (from <= text.size()) {
    const Window window(text, from, window_bytes);
    // Enough for any pattern that goes over the window a few times. One that tries many ways through it draws
    // on the budget for a second attempt.
    const size_t few_steps = 4096 + 8 * (window.end - from);
    int code = search(text, from, window, few_steps);
    const bool ran_out = code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT;
    if (ran_out && few_steps < kPatientSteps && budget.spend(8 * kPatientSteps))
      code = search(text, from, window, kPatientSteps);
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(scratch_->data.get());
    const size_t last_tried = code >= 0 ? std::min(range[0], window.last_start) : window.last_start;
    const bool is_grown = window_bytes > base;
    if (is_grown && !budget.spend((last_tried - from + 1) * (window.end - from))) return SearchEnd::kGaveUp;
    if (code == PCRE2_ERROR_PARTIAL) {
      window_bytes *= 2;
      continue;
    }
    window_bytes = base;
    if (code == PCRE2_ERROR_NOMATCH) {
      if (window.last_start >= text.size()) break;
      from = boundary_after(text, window.last_start);
    } else if (code < 0) {
      return SearchEnd::kGaveUp;
    } else if (range[0] == range[1] && range[1] == last_end) {
      from = boundary_after(text, last_end);
    } else {
      found.push_back({range[0], range[1]});
      from = last_end = range[1];
    }
  }
  return SearchEnd::kComplete;
}

}  // namespace lockstep::serving::tokenizing
