#include "lockstep/cli/library_messages.h"

#include <gtest/gtest.h>

#include <iostream>

#include "lockstep/base/log.h"

namespace lockstep::cli {
namespace {

// At the log's usual level nothing is seen; at its lowest one line each, however it was written.
TEST(LibraryMessages, BecomeLinesOfTheLog) {
  testing::internal::CaptureStderr();
  {
    LibraryMessages messages;
    std::cerr << "[12:00:00] grammar.cc:7: Warning: " << 3 << " things\n";
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  {
    LibraryMessages messages;
    set_log_level(LogLevel::kDebug);
    std::cerr << "one " << 3 << '\n' << "\n\n" << "two" << std::endl << "no end";
    set_log_level(LogLevel::kInfo);
  }
  const std::string seen = testing::internal::GetCapturedStderr();
  EXPECT_NE(seen.find("a library says: one 3\n"), std::string::npos) << seen;
  EXPECT_NE(seen.find("a library says: two\n"), std::string::npos) << seen;
  EXPECT_EQ(seen.find("no end"), std::string::npos) << seen;
  testing::internal::CaptureStderr();
  std::cerr << "as before\n";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "as before\n");
}

}  // namespace
}  // namespace lockstep::cli
