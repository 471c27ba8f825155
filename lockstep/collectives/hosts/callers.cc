#include "lockstep/collectives/hosts/callers.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lockstep/collectives/hosts/links.h"

namespace lockstep::collectives {
namespace {

constexpr size_t kMostJoiningBytes = size_t{4} << 20;

}  // namespace

std::optional<Json> receive_json(TcpStream& stream, Clock::time_point deadline) {
  const Frame frame = receive_frame(stream, kMostJoiningBytes, deadline);
  const std::string_view text(reinterpret_cast<const char*>(frame.bytes.get()), frame.size);
  auto json = parse_json(text, {.max_bytes = kMostJoiningBytes, .max_depth = 8});
  if (frame.kind != FrameKind::kJoining || !json || !json->is_object()) return std::nullopt;
  return *std::move(json);
}

Callers::~Callers() {
  for (const Conversation& conversation : conversations_) conversation.caller.stream.shut_down();
  conversations_.clear();  // joins
}

bool Callers::is_empty() const {
  const std::lock_guard lock(mutex_);
  return conversations_.empty();
}

bool Callers::is_full() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(conversations_) >= kMost;
}

void Callers::listen_to(TcpStream stream, std::chrono::milliseconds patience) {
  std::string address = stream.peer_address();
  const std::lock_guard lock(mutex_);
  Conversation& made =
      conversations_.emplace_back(Caller{std::move(stream), std::move(address), std::nullopt});
  const auto listen = [this, &made, until = Clock::now() + patience] {
    std::optional<Json> hello;
    try {
      hello = receive_json(made.caller.stream, until);
    } catch (const std::exception&) {  // ConnectionLost, or memory that ran out
      hello = std::nullopt;
    }
    const std::lock_guard guard(mutex_);
    made.caller.hello = std::move(hello);
    made.is_over = true;
    changed_.notify_all();
  };
  try {
    made.thread = std::jthread(listen);
  } catch (const std::system_error&) {  // no thread can be had: it may call again
    conversations_.pop_back();
  }
}

std::optional<Callers::Caller> Callers::next(Clock::time_point deadline) {
  std::list<Conversation> over;
  {
    std::unique_lock lock(mutex_);
    const auto is_over = [](const Conversation& conversation) { return conversation.is_over; };
    const auto find = [&] { return std::ranges::find_if(conversations_, is_over); };
    if (!changed_.wait_until(lock, deadline, [&] { return find() != conversations_.end(); }))
      return std::nullopt;
    over.splice(over.end(), conversations_, find());
  }
  over.front().thread = {};  // it has said its last
  return std::move(over.front().caller);
}

}  // namespace lockstep::collectives
