#include "lockstep/collectives/hosts/joining.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "lockstep/base/json.h"
#include "lockstep/collectives/hosts/callers.h"

namespace lockstep::collectives {
namespace {

using std::chrono::milliseconds;

constexpr int kProtocol = 1;
constexpr milliseconds kHello{3000};     // of who has called, to say who it is
constexpr milliseconds kConnect{2000};   // of one address
constexpr milliseconds kMeshing{30000};  // for connections between all, once all are there
constexpr milliseconds kLook{200};       // between looks at an interrupt
constexpr milliseconds kGlance{20};      // the same while somebody has called
constexpr milliseconds kTell{5000};      // between lines about who is missing

// What stops a start, thrown inside of this file only.
struct Refused {
  Error error;
};
struct RefusedByHead : Refused {};
[[noreturn]] void refuse(std::string message, std::string field = "--hosts") {
  throw Refused{Error{ErrorCode::kUnavailable, std::move(message), std::move(field)}};
}

void send_json(TcpStream& stream, const Json& json) {
  const std::string text = to_text(json);
  const auto part = std::as_bytes(std::span<const char>(text));
  send_frame(stream, FrameKind::kJoining, {&part, 1});
}

int64_t number_in(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number_integer() ? at->get<int64_t>() : -1;
}
std::string text_in(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
}
bool is_true_in(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_boolean() && at->get<bool>();
}
std::vector<int64_t> numbers_in(const Json& json, const char* key) {
  std::vector<int64_t> numbers;
  const auto at = json.find(key);
  if (at == json.end() || !at->is_array()) return numbers;
  for (const Json& one : *at) numbers.push_back(one.is_number_integer() ? one.get<int64_t>() : 0);
  return numbers;
}
std::vector<std::string> texts_in(const Json& json, const char* key) {
  std::vector<std::string> texts;
  const auto at = json.find(key);
  if (at == json.end() || !at->is_array()) return texts;
  for (const Json& one : *at)
    if (one.is_string()) texts.push_back(one.get<std::string>());
  return texts;
}

std::string own_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

class Joining {
 public:
  Joining(const HostPlace& place, const Passport& passport, const JoinProgress& progress)
      : place_(place), passport_(passport), progress_(progress), deadline_(Clock::now() + place.patience) {}

  Joined run() {
    place_.index == 0 ? gather() : call();
    return {.links = std::make_shared<Links>(Links::Options{.num_processes = place_.num,
                                                            .own = place_.index,
                                                            .num_ranks = passport_.num_ranks,
                                                            .silence = place_.silence},
                                             std::move(streams_)),
            .capacities = capacities_};
  }

 private:
  // What the head knows of another process.
  struct Guest {
    Json hello;
    std::string address;
  };

  bool is_interrupted() const { return place_.interrupted != nullptr && place_.interrupted->load() != 0; }
  void check_interrupt() const {
    if (is_interrupted()) refuse("interrupted while waiting for the other processes");
  }
  Clock::time_point soon(milliseconds patience) const { return std::min(deadline_, Clock::now() + patience); }
  void tell_now_and_then(const std::function<std::string()>& words) {
    if (Clock::now() < next_line_) return;
    next_line_ = Clock::now() + kTell;
    if (progress_) progress_(words());
  }

  // The head.
  void gather() {
    const std::string at = is_loopback(place_.coordinator) ? place_.coordinator : std::string();
    const auto listener = TcpListener::open(at, place_.port);
    if (!listener) throw Refused{listener.error()};
    if (const std::string doubt = doubt_about_coordinator(); !doubt.empty() && progress_) progress_(doubt);
    next_line_ = Clock::now() + milliseconds(1000);
    Callers callers;
    for (;;) {
      if (is_interrupted()) refuse_all("the head was interrupted while it waited for the other processes");
      drop_who_left();
      if (std::ssize(guests_) + 1 == place_.num) break;
      tell_now_and_then(
          [&] { return fmt::format("waiting for {} at port {}", missing(), listener->port()); });
      if (Clock::now() >= deadline_) {
        const std::string reason =
            fmt::format("{} did not come to port {} within {:.1f} s (--host-join-timeout); {} of {} are here",
                        missing(), listener->port(), std::chrono::duration<double>(place_.patience).count(),
                        guests_.size() + 1, place_.num);
        refuse_all(reason);
      }
      if (callers.is_full()) {
        if (auto caller = callers.next(soon(kLook))) receive_guest(*std::move(caller));
        continue;
      }
      if (auto caller = listener->accept_until(soon(callers.is_empty() ? kLook : kGlance)))
        callers.listen_to(*std::move(caller), kHello);
      while (auto caller = callers.next(Clock::now())) receive_guest(*std::move(caller));
    }
    introduce();
  }

  // Who waits to be introduced says nothing: what comes of it is its end, or that it gives up.
  void drop_who_left() {
    std::erase_if(streams_, [this](const auto& one) {
      const auto& [process, stream] = one;
      if (!stream.has_something_until(Clock::now())) return false;
      if (progress_)
        progress_(fmt::format("process {} at {} has left again", process, guests_.at(process).address));
      guests_.erase(process);
      return true;
    });
  }

  // The others are told to call this name: who misspells it waits for them in vain.
  std::string doubt_about_coordinator() const {
    const std::string wrong = why_not_of_this_machine(place_.coordinator);
    return wrong.empty() ? ""
                         : fmt::format(
                               "--coordinator {} {}: the other processes must be told a name or an "
                               "address by which they reach this one",
                               place_.coordinator, wrong);
  }

  std::string missing() const {
    std::vector<int> absent;
    for (int process = 1; process < place_.num; ++process)
      if (!guests_.contains(process)) absent.push_back(process);
    return fmt::format("process{} {}", absent.size() == 1 ? "" : "es", fmt::join(absent, ", "));
  }

  void receive_guest(Callers::Caller from) {
    auto& [caller, address, hello] = from;
    const auto say = [&](const std::string& line) {
      if (progress_) progress_(line);
    };
    if (!hello || number_in(*hello, "lockstep") < 1)
      return say(fmt::format("{} called and did not say within {} ms that it is a process of lockstep",
                             address, kHello.count()));
    const int64_t index = number_in(*hello, "index");
    if (const std::string wrong = difference(*hello, index, address); !wrong.empty()) {
      tell(caller, {{"refused", wrong}});
      refuse_all(wrong);
    }
    drop_who_left();  // this one may come in its place
    if (const auto there = guests_.find(static_cast<int>(index)); there != guests_.end()) {
      const std::string wrong =
          fmt::format("two processes say that they are number {}: at {} and at {} (--host-rank)", index,
                      there->second.address, address);
      tell(caller, {{"refused", wrong}});
      refuse_all(wrong);
    }
    say(fmt::format("process {} of {} is here, from {} ({})", index, place_.num, address,
                    text_in(*hello, "name")));
    guests_.emplace(static_cast<int>(index), Guest{*std::move(hello), address});
    streams_.emplace(static_cast<int>(index), std::move(caller));
  }

  // What keeps the process out, empty: nothing.
  std::string difference(const Json& hello, int64_t index, const std::string& address) const {
    if (const int64_t theirs = number_in(hello, "lockstep"); theirs != kProtocol)
      return fmt::format(
          "the process at {} joins as version {}, the head as version {}: they are of "
          "different builds",
          address, theirs, kProtocol);
    if (const int64_t theirs = number_in(hello, "hosts"); theirs != place_.num)
      return fmt::format("--hosts is {} in the process at {} and {} in the head", theirs, address,
                         place_.num);
    if (index < 1 || index >= place_.num)
      return fmt::format("--host-rank {} of the process at {} is not between 1 and {}", index, address,
                         place_.num - 1);
    const auto same = hello.find("same");
    for (const auto& [name, value] : passport_.same) {
      const std::string theirs =
          same != hello.end() && same->is_object() ? text_in(*same, name.c_str()) : std::string();
      if (theirs != value)
        return fmt::format("{} is {} in process {} at {} and {} in the head: all processes need the same",
                           name, theirs.empty() ? "not said" : theirs, index, address, value);
    }
    return "";
  }

  static void tell(TcpStream& stream, const Json& json) {
    try {
      send_json(stream, json);
    } catch (const ConnectionLost&) {  // it is told no more than it can hear
    }
  }
  [[noreturn]] void refuse_all(const std::string& reason) {
    const bool again = !is_interrupted() && place_.waits_again && place_.waits_again();
    for (auto& [process, stream] : streams_) tell(stream, {{"refused", reason}, {"again", again}});
    refuse(reason);
  }

  void introduce() {
    capacities_ = passport_.capacities;
    Json peers = Json::array();
    for (const auto& [process, guest] : guests_) {
      const std::vector<int64_t> theirs = numbers_in(guest.hello, "capacities");
      for (size_t at = 0; at < capacities_.size(); ++at)
        capacities_[at] = std::min(capacities_[at], at < theirs.size() ? theirs[at] : 0);
      std::vector<std::string> addresses = {guest.address};
      for (std::string& address : texts_in(guest.hello, "addresses"))
        if (std::find(addresses.begin(), addresses.end(), address) == addresses.end())
          addresses.push_back(std::move(address));
      peers.push_back(
          {{"index", process}, {"port", number_in(guest.hello, "port")}, {"addresses", addresses}});
    }
    const std::string token = fmt::format("{:016x}{:016x}", fresh(), fresh());
    for (auto& [process, stream] : streams_)
      said(process,
           [&] { send_json(stream, {{"token", token}, {"capacities", capacities_}, {"peers", peers}}); });
    for (auto& [process, stream] : streams_)
      said(process, [&] {
        const auto answer = receive_json(stream, Clock::now() + kMeshing);
        const std::string wrong = answer ? text_in(*answer, "refused") : "it said what nobody understands";
        if (!wrong.empty()) refuse_all(fmt::format("process {}: {}", process, wrong));
      });
    for (auto& [process, stream] : streams_) said(process, [&] { send_json(stream, {{"go", true}}); });
  }
  void said(int process, const std::function<void()>& talk) {
    try {
      talk();
    } catch (const ConnectionLost& loss) {
      refuse_all(fmt::format("process {} at {} was lost while joining: {}", process,
                             guests_.at(process).address, loss.what()));
    }
  }
  static uint64_t fresh() {
    std::random_device device;
    return (uint64_t{device()} << 32) ^ device();
  }

  // Everybody else.
  void call() {
    auto listener = TcpListener::open("", 0);
    if (!listener) throw Refused{listener.error()};
    TcpStream head = reach_head();
    try {
      send_json(head, hello(*listener, head));
      // The head may have begun to wait later than this process did.
      const Json welcome = answer_of(head, Clock::now() + place_.patience + kHello);
      capacities_ = numbers_in(welcome, "capacities");
      if (capacities_.size() != passport_.capacities.size())
        throw ConnectionLost("it did not say what all can hold");
      connect_to_lower(welcome);
      accept_higher(*listener, text_in(welcome, "token"));
      send_json(head, {{"ready", true}});
      answer_of(head, Clock::now() + kMeshing);
    } catch (const ConnectionLost& loss) {
      refuse(fmt::format("the head at {} was lost while joining: {}", place_.coordinator, loss.what()));
    } catch (const RefusedByHead&) {
      throw;
    } catch (const Refused& refused) {
      tell(head, {{"refused", refused.error.message}});
      hear_refusal(head);
      throw;
    }
    streams_.emplace(0, std::move(head));
  }

  // The head refuses all where one refuses, and says what it will do next.
  void hear_refusal(TcpStream& head) const {
    try {
      answer_of(head, Clock::now() + kMeshing);
    } catch (const ConnectionLost&) {  // it has nothing more to say
    }
  }

  Json hello(const TcpListener& listener, const TcpStream& head) const {
    Json same = Json::object();
    for (const auto& [name, value] : passport_.same) same[name] = value;
    std::vector<std::string> addresses = interface_addresses();
    addresses.insert(addresses.begin(), head.local_address());
    return {{"lockstep", kProtocol},
            {"index", place_.index},
            {"hosts", place_.num},
            {"same", std::move(same)},
            {"capacities", passport_.capacities},
            {"addresses", addresses},
            {"port", listener.port()},
            {"name", own_name()}};
  }

  // It may start later than this process.
  TcpStream reach_head() {
    next_line_ = Clock::now() + milliseconds(1000);
    for (;;) {
      check_interrupt();
      auto stream = connect_to(place_.coordinator, place_.port, kConnect);
      if (stream) return *std::move(stream);
      if (Clock::now() + kLook >= deadline_)
        refuse(fmt::format("the head did not answer within {:.1f} s (--host-join-timeout): {}",
                           std::chrono::duration<double>(place_.patience).count(), stream.error().message),
               "--coordinator");
      tell_now_and_then(
          [&] { return fmt::format("the head does not answer yet: {}", stream.error().message); });
      std::this_thread::sleep_for(kLook);
    }
  }

  // While the head waits for others it says nothing, and the interrupt must be seen.
  Json answer_of(TcpStream& head, Clock::time_point deadline) const {
    while (!head.has_something_until(std::min(deadline, Clock::now() + kLook))) {
      check_interrupt();
      if (Clock::now() >= deadline) throw ConnectionLost("it said nothing in time");
    }
    const auto answer = receive_json(head, Clock::now() + kHello);
    if (!answer) throw ConnectionLost("it said what nobody understands");
    if (const std::string reason = text_in(*answer, "refused"); !reason.empty())
      throw RefusedByHead{{Error{is_true_in(*answer, "again") ? ErrorCode::kAborted : ErrorCode::kUnavailable,
                                 fmt::format("the head refuses to start: {}", reason), "--hosts"}}};
    return *answer;
  }

  void connect_to_lower(const Json& welcome) {
    const auto peers = welcome.find("peers");
    if (peers == welcome.end() || !peers->is_array()) throw ConnectionLost("it named no processes");
    for (const Json& peer : *peers) {
      const int64_t index = number_in(peer, "index");
      if (index < 1 || index >= place_.index) continue;
      streams_.emplace(static_cast<int>(index), reach(peer, text_in(welcome, "token")));
    }
    if (std::ssize(streams_) != place_.index - 1) throw ConnectionLost("it did not name every process");
  }

  // By whichever of its addresses the right process answers.
  TcpStream reach(const Json& peer, const std::string& token) const {
    std::string failures;
    for (const std::string& address : texts_in(peer, "addresses")) {
      auto stream = connect_to(address, static_cast<int>(number_in(peer, "port")), kConnect);
      if (!stream) {
        failures += "; " + stream.error().message;
        continue;
      }
      try {
        send_json(*stream, {{"token", token}, {"from", place_.index}});
        const auto answer = receive_json(*stream, Clock::now() + kHello);
        if (answer && number_in(*answer, "index") == number_in(peer, "index") &&
            text_in(*answer, "token") == token)
          return *std::move(stream);
        failures += fmt::format("; {} is somebody else", address);
      } catch (const ConnectionLost& loss) {
        failures += fmt::format("; {}: {}", address, loss.what());
      }
    }
    refuse(fmt::format("process {} cannot reach process {}{}", place_.index, number_in(peer, "index"),
                       failures));
  }

  void accept_higher(const TcpListener& listener, const std::string& token) {
    const auto until = Clock::now() + kMeshing;
    while (std::ssize(streams_) + 2 < place_.num) {
      check_interrupt();
      if (Clock::now() >= until)
        refuse(fmt::format("process {} waited {} ms for a connection of those after it", place_.index,
                           kMeshing.count()));
      auto caller = listener.accept_until(std::min(until, Clock::now() + kLook));
      if (!caller) continue;
      try {
        const auto json = receive_json(*caller, Clock::now() + kHello);
        const int64_t from = json ? number_in(*json, "from") : -1;
        if (!json || text_in(*json, "token") != token || from <= place_.index || from >= place_.num) continue;
        send_json(*caller, {{"token", token}, {"index", place_.index}});
        streams_.emplace(static_cast<int>(from), *std::move(caller));
      } catch (const ConnectionLost&) {  // somebody else called
      }
    }
  }

  const HostPlace& place_;
  const Passport& passport_;
  const JoinProgress& progress_;
  const Clock::time_point deadline_;
  Clock::time_point next_line_;
  std::map<int, Guest> guests_;
  std::map<int, TcpStream> streams_;
  std::vector<int64_t> capacities_;
};

}  // namespace

Result<Joined> join(const HostPlace& place, const Passport& passport, const JoinProgress& progress) {
  try {
    return Joining(place, passport, progress).run();
  } catch (const Refused& refused) {
    return refused.error;
  }
}

}  // namespace lockstep::collectives
