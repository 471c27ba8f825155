#include "lockstep/base/check.h"

namespace lockstep {

void fail_check(const char* file, int line, std::string_view what) {
  std::string_view path(file);
  if (const auto room = path.rfind("lockstep/"); room != std::string_view::npos) path = path.substr(room);
  throw Fatal(fmt::format("{}:{}: {}", path, line, what));
}

}  // namespace lockstep
