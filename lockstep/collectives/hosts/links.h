#pragma once
// What ties the processes of one engine together once they have joined: a TCP connection between every two of
// them, a thread for each that receives, and one that says now and then that this process is alive. The first
// thing that goes wrong anywhere (a process that ends, that is silent for too long, a rank that failed) ends
// all of them with the same words: nobody waits for who is gone.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/split.h"
#include "lockstep/collectives/hosts/tcp.h"

namespace lockstep::collectives {

enum class FrameKind : uint8_t {
  kAlive,   // nothing to say
  kFailed,  // text: why the sender gave up
  kBye,     // the sender ends in good order
  kRows,    // from a rank to those of a group (rank_messages.h)
  kWork,    // anything else that whoever owns the links sends
  kJoining  // before there are links (joining.h)
};
inline constexpr size_t kMostFrameBytes = size_t{4} << 30;

struct Frame {
  FrameKind kind = FrameKind::kAlive;
  std::unique_ptr<std::byte[]> bytes;  // aligned as by new
  size_t size = 0;
  std::span<std::byte> span() const { return {bytes.get(), size}; }
};

using Parts = std::span<const std::span<const std::byte>>;
void send_frame(TcpStream& stream, FrameKind kind, Parts parts);
// Throws ConnectionLost, also for what is no frame or larger than `most`. Without a deadline it waits for
// ever. `heard` is called whenever some of it has come.
Frame receive_frame(TcpStream& stream, size_t most, std::optional<Clock::time_point> deadline = {},
                    const std::function<void()>& heard = {});

// Who takes what comes. Calls come on the threads that receive, for one process one at a time.
class LinkUser {
 public:
  virtual ~LinkUser() = default;
  // What it throws fails the links.
  virtual void on_frame(int process, Frame frame) = 0;
  // Once, on any thread. Must not call the links.
  virtual void on_failure(const std::string& reason) = 0;
};

class Links {
 public:
  struct Options {
    int num_processes = 1, own = 0;
    int num_ranks = 1;                        // of all processes; spread over them in order
    std::chrono::milliseconds silence{5000};  // after which a process counts as dead
  };
  // Streams by the number of the process at their other end.
  Links(const Options& options, std::map<int, TcpStream> streams);
  // Says farewell to who is still there.
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  int own() const { return options_.own; }
  int num_processes() const { return options_.num_processes; }
  Range ranks_of(int process) const {
    return split_range(options_.num_ranks, options_.num_processes, process);
  }
  int process_of(int rank) const {
    return static_cast<int>(owner_of(options_.num_ranks, options_.num_processes, rank));
  }
  std::string name_of(int process) const;  // "process 1 (ranks 2 to 3, 10.0.0.2)"

  // Frames of the kind (kRows or kWork) go to the user until it is detached, those that came before first of
  // all: another process may be ready earlier. After that they may not come. A failure that was before is
  // told at once. When detach() returns no call runs any more.
  void attach(FrameKind kind, LinkUser& user);
  void detach(FrameKind kind);

  // From any thread; Fatal once the links failed.
  void send(int process, FrameKind kind, Parts parts);
  // Tells the others and this process's owner. The first reason is kept.
  void fail(const std::string& reason);
  std::string failure() const;  // empty where nothing failed
  // What ended the links, before anything else went wrong.
  enum class Cause : uint8_t { kNone, kFailure, kProcessLeft, kProcessLost };
  // kFailure also where it was another process.
  Cause cause(int process) const;

 private:
  struct Peer {
    explicit Peer(TcpStream its) : stream(std::move(its)) {}
    TcpStream stream;
    std::mutex sending;
    std::atomic<Clock::time_point::rep> last_heard{0};
    std::atomic<bool> left{false};
    bool has_ended = false;  // nothing more comes; guarded by mutex_
    std::jthread thread;
  };
  void receive(int process, Peer& peer);
  void take_all(int process, Peer& peer);
  void take(int process, Peer& peer, Frame frame);
  void hand_over(int process, Frame frame);
  void watch(const std::stop_token& stop);
  enum class Tell : uint8_t { kEveryone, kOwner };
  struct Blame {
    Cause cause = Cause::kFailure;
    int process = -1;
  };
  void fail_as(const std::string& reason, Tell tell, Blame blame);
  void lose(int process, const std::string& what);
  void send_failure(Peer& peer, std::string_view reason, const Blame& blame) noexcept;
  void send_if_free(Peer& peer, FrameKind kind, Parts parts) noexcept;

  const Options options_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::map<int, std::string> addresses_;
  std::shared_mutex using_;               // shared by calls of users
  std::map<FrameKind, LinkUser*> users_;  // guarded by using_; null: detached
  struct Early {
    int process = 0;
    Frame frame;
  };
  std::vector<Early> early_;  // what came before its user; guarded by using_
  mutable std::mutex mutex_;
  std::string failure_;  // guarded by mutex_, as is what follows
  Blame blame_;
  std::condition_variable ended_;
  std::atomic<bool> closing_{false};
  std::jthread watcher_;
};

}  // namespace lockstep::collectives
