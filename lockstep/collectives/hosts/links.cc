#include "lockstep/collectives/hosts/links.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::collectives {
namespace {

constexpr uint32_t kMagic = 0x4b53434c;  // "LCSK"
constexpr size_t kMostReasonBytes = 4096;
constexpr size_t kMostEarlyBytes = size_t{64} << 20, kMostEarlyFrames = 1024;
constexpr size_t kBytesAtOnce = size_t{1} << 20;
constexpr std::chrono::milliseconds kFarewell{250};  // for the others to hear it

struct FrameHead {
  uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kAlive;
  uint8_t unused[3] = {};
  uint64_t size = 0;
};

Clock::time_point::rep now() { return Clock::now().time_since_epoch().count(); }

}  // namespace

void send_frame(TcpStream& stream, FrameKind kind, Parts parts) {
  FrameHead head{.kind = kind};
  std::vector<std::span<const std::byte>> all = {std::as_bytes(std::span<const FrameHead>(&head, 1))};
  for (const auto& part : parts) {
    head.size += part.size();
    all.push_back(part);
  }
  LOCKSTEP_CHECK_LE(head.size, kMostFrameBytes);
  stream.send(all);
}

Frame receive_frame(TcpStream& stream, size_t most, std::optional<Clock::time_point> deadline,
                    const std::function<void()>& heard) {
  FrameHead head;
  const auto fill = [&](std::span<std::byte> all) {
    while (!all.empty()) {
      const auto some = all.first(std::min(all.size(), kBytesAtOnce));
      deadline ? stream.receive_until(some, *deadline) : stream.receive(some);
      if (heard) heard();
      all = all.subspan(some.size());
    }
  };
  fill(std::as_writable_bytes(std::span<FrameHead>(&head, 1)));
  if (head.magic != kMagic || head.kind > FrameKind::kJoining)
    throw ConnectionLost("what came is not from a process of lockstep");
  if (head.size > most)
    throw ConnectionLost(fmt::format("a message of {} bytes came, {} are allowed", head.size, most));
  // Pages that nobody fills cost nothing, so a length that lies takes no memory.
  Frame frame{.kind = head.kind,
              .bytes = std::make_unique_for_overwrite<std::byte[]>(head.size),
              .size = static_cast<size_t>(head.size)};
  fill(frame.span());
  return frame;
}

Links::Links(const Options& options, std::map<int, TcpStream> streams) : options_(options) {
  LOCKSTEP_CHECK_EQ(static_cast<int>(streams.size()), options.num_processes - 1);
  for (auto& [process, stream] : streams) {
    addresses_[process] = stream.peer_address();
    stream.set_send_patience(options.silence);
    auto& peer = peers_[process] = std::make_unique<Peer>(std::move(stream));
    peer->last_heard = now();
  }
  for (auto& [process, peer] : peers_)
    peer->thread = std::jthread([this, from = process, sender = peer.get()] { receive(from, *sender); });
  watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Links::~Links() {
  closing_ = true;
  watcher_ = {};
  // Who could not be told then, in the middle of a message, is told now: a failure is no farewell.
  std::string reason;
  Blame blame;
  {
    const std::lock_guard lock(mutex_);
    reason = failure_, blame = blame_;
  }
  for (auto& [process, peer] : peers_) {
    if (!reason.empty()) send_failure(*peer, reason, blame);
    send_if_free(*peer, FrameKind::kBye, {});
    peer->stream.shut_down_sending();
  }
  {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, kFarewell, [this] {
      return std::ranges::all_of(peers_, [](const auto& one) { return one.second->has_ended; });
    });
  }
  for (auto& [process, peer] : peers_) peer->stream.shut_down();
  for (auto& [process, peer] : peers_) peer->thread = {};
}

std::string Links::name_of(int process) const {
  const Range ranks = ranks_of(process);
  const auto address = addresses_.find(process);
  return fmt::format("process {} ({} {}{})", process,
                     ranks.size() == 1 ? fmt::format("rank {}", ranks.begin)
                                       : fmt::format("ranks {} to {}", ranks.begin, ranks.end - 1),
                     address == addresses_.end() ? "" : "at ",
                     address == addresses_.end() ? "here" : address->second);
}

void Links::attach(FrameKind kind, LinkUser& user) {
  std::string refused;
  {
    const std::unique_lock lock(using_);
    users_[kind] = &user;
    for (Early& early : early_) {
      if (early.frame.kind != kind || !refused.empty()) continue;
      try {
        user.on_frame(early.process, std::move(early.frame));
      } catch (const std::exception& failure) {
        refused = fmt::format("a message of {} was refused: {}", name_of(early.process), failure.what());
      }
    }
    std::erase_if(early_, [kind](const Early& early) { return early.frame.kind == kind; });
  }
  if (!refused.empty()) return fail(refused);  // which tells the user too
  if (const std::string reason = failure(); !reason.empty()) user.on_failure(reason);
}

void Links::detach(FrameKind kind) {
  const std::unique_lock lock(using_);
  users_[kind] = nullptr;
}

void Links::send(int process, FrameKind kind, Parts parts) {
  Peer& peer = *peers_.at(process);
  try {
    const std::lock_guard lock(peer.sending);
    send_frame(peer.stream, kind, parts);
    return;
  } catch (const ConnectionLost& loss) {
    lose(process, fmt::format("is gone ({})", loss.what()));
  }
  throw Fatal(failure());
}

// Whoever is in the middle of sending to the process is proof enough of life, and must not be waited for.
void Links::send_if_free(Peer& peer, FrameKind kind, Parts parts) noexcept {
  const std::unique_lock lock(peer.sending, std::try_to_lock);
  if (!lock.owns_lock()) return;
  try {
    send_frame(peer.stream, kind, parts);
  } catch (const std::exception&) {
    peer.stream.shut_down();  // its receiver says what this means
  }
}

// The number of the process that was lost, or -1, and then the reason.
void Links::send_failure(Peer& peer, std::string_view reason, const Blame& blame) noexcept {
  const int32_t lost = blame.cause == Cause::kProcessLost ? blame.process : -1;
  const std::string_view told = reason.substr(0, kMostReasonBytes);
  const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&lost, 1)),
                                              std::as_bytes(std::span(told.data(), told.size()))};
  send_if_free(peer, FrameKind::kFailed, parts);
}

void Links::fail(const std::string& reason) { fail_as(reason, Tell::kEveryone, {}); }

void Links::lose(int process, const std::string& what) {
  fail_as(fmt::format("{} {}", name_of(process), what), Tell::kEveryone, {Cause::kProcessLost, process});
}

void Links::fail_as(const std::string& reason, Tell tell, Blame blame) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty() || closing_) return;
    failure_ = reason;
    blame_ = blame;
  }
  if (tell == Tell::kEveryone) {
    for (auto& [process, peer] : peers_) send_failure(*peer, reason, blame);
  }
  const std::shared_lock lock(using_);
  for (const auto& [kind, user] : users_)
    if (user != nullptr) user->on_failure(reason);
}

std::string Links::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Links::Cause Links::cause(int process) const {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) return Cause::kNone;
  return blame_.process == process ? blame_.cause : Cause::kFailure;
}

// To the end, whatever failed before: closing a connection with bytes that nobody has read resets it, and the
// other side may lose what it was told last.
void Links::receive(int process, Peer& peer) {
  take_all(process, peer);
  try {
    while (!peer.left)
      if (receive_frame(peer.stream, kMostFrameBytes).kind == FrameKind::kBye) peer.left = true;
  } catch (const std::exception&) {  // the end
  }
  if (peer.left) peer.stream.shut_down_sending();  // to who has said farewell there is nothing to say
  const std::lock_guard lock(mutex_);
  peer.has_ended = true;
  ended_.notify_all();
}

void Links::take_all(int process, Peer& peer) {
  try {
    for (;;) {
      Frame frame = receive_frame(peer.stream, kMostFrameBytes, {}, [&] { peer.last_heard = now(); });
      take(process, peer, std::move(frame));
      if (peer.left) return;
    }
  } catch (const ConnectionLost& loss) {
    lose(process, fmt::format("is gone ({})", loss.what()));
  } catch (const std::exception& failure) {
    fail(fmt::format("a message of {} was refused: {}", name_of(process), failure.what()));
  }
}

void Links::take(int process, Peer& peer, Frame frame) {
  switch (frame.kind) {
    case FrameKind::kAlive:
      return;
    case FrameKind::kRows:
    case FrameKind::kWork:
      return hand_over(process, std::move(frame));
    case FrameKind::kFailed: {
      int32_t lost = -1;
      if (frame.size < sizeof(lost)) break;
      std::memcpy(&lost, frame.bytes.get(), sizeof(lost));
      const size_t size = std::min(frame.size - sizeof(lost), kMostReasonBytes);
      const std::string reason(reinterpret_cast<const char*>(frame.bytes.get()) + sizeof(lost), size);
      return fail_as(fmt::format("{}: {}", name_of(process), reason), Tell::kOwner,
                     {lost < 0 ? Cause::kFailure : Cause::kProcessLost, lost});
    }
    case FrameKind::kBye:
      peer.left = true;
      // All end when the head does, and may hear of each other's end before they hear of its.
      if (process != 0 && own() != 0) return;
      return fail_as(fmt::format("{} has ended", name_of(process)), Tell::kOwner,
                     {Cause::kProcessLeft, process});
    case FrameKind::kJoining:
      break;
  }
  throw ConnectionLost(fmt::format("a message of kind {} came", static_cast<int>(frame.kind)));
}

void Links::hand_over(int process, Frame frame) {
  const FrameKind kind = frame.kind;
  {
    const std::shared_lock lock(using_);
    if (const auto user = users_.find(kind); user != users_.end() && user->second != nullptr)
      return user->second->on_frame(process, std::move(frame));
  }
  const std::unique_lock lock(using_);  // somebody may have come in between
  if (const auto user = users_.find(kind); user != users_.end()) {
    if (user->second != nullptr) return user->second->on_frame(process, std::move(frame));
    throw ConnectionLost(fmt::format("a message of kind {} came", static_cast<int>(kind)));
  }
  size_t bytes = frame.size;
  for (const Early& early : early_) bytes += early.frame.size;
  if (bytes > kMostEarlyBytes || early_.size() >= kMostEarlyFrames)
    throw ConnectionLost(fmt::format("{} messages came before anybody could take them", early_.size() + 1));
  early_.push_back({process, std::move(frame)});
}

// A process that is stopped, or whose machine or network is gone, closes no connection: it is known by its
// silence. Ending the connection wakes whoever sends there or waits for it.
void Links::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wake;
  const auto interval = std::max(options_.silence / 5, std::chrono::milliseconds(1));
  auto looked = Clock::now();
  while (!wake.wait_for(lock, stop, interval, [] { return false; }) && !stop.stop_requested()) {
    // Where this process itself stood still, it has heard nobody.
    const auto since_looked = Clock::now() - looked;
    looked = Clock::now();
    if (since_looked > options_.silence / 2) {
      for (auto& [process, peer] : peers_) peer->last_heard = now();
      continue;
    }
    for (auto& [process, peer] : peers_) {
      if (peer->left) continue;
      send_if_free(*peer, FrameKind::kAlive, {});
      const auto silent = Clock::duration(now() - peer->last_heard.load());
      if (silent <= options_.silence) continue;
      lose(process, fmt::format("has said nothing for {} ms (--host-timeout)",
                                std::chrono::duration_cast<std::chrono::milliseconds>(silent).count()));
      peer->stream.shut_down();
    }
  }
}

}  // namespace lockstep::collectives
