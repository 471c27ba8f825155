#pragma once
// What libraries write to std::cerr, as lines of the log at its lowest level: some repeat parts of requests,
// and none knows --log-level or --log-format. Nothing of ours writes there. For main.
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

namespace lockstep::cli {

class LibraryMessages : public std::streambuf {
 public:
  LibraryMessages();
  ~LibraryMessages() override;
  LibraryMessages(const LibraryMessages&) = delete;
  LibraryMessages& operator=(const LibraryMessages&) = delete;

 protected:
  int_type overflow(int_type character) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;

 private:
  void take(std::string_view text);

  std::streambuf* const before_;
  std::mutex mutex_;
  std::string line_;  // guarded by mutex_
};

}  // namespace lockstep::cli
