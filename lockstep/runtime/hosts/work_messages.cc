#include "lockstep/runtime/hosts/work_messages.h"

#include <utility>

namespace lockstep::runtime {
namespace {

constexpr size_t kMostFaultBytes = 4096;

}  // namespace

WorkBox::WorkBox(collectives::Links& links) : links_(links) {
  links_.attach(collectives::FrameKind::kWork, *this);
}

WorkBox::~WorkBox() { links_.detach(collectives::FrameKind::kWork); }

std::optional<WorkBox::Letter> WorkBox::wait_for(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, patience, [this] { return !letters_.empty() || !failure_.empty(); });
  if (letters_.empty()) {
    if (!failure_.empty()) throw Fatal(failure_);
    return std::nullopt;
  }
  Letter letter = std::move(letters_.front());
  letters_.pop_front();
  return letter;
}

void WorkBox::on_frame(int process, collectives::Frame frame) {
  {
    const std::lock_guard lock(mutex_);
    letters_.push_back({process, std::move(frame)});
  }
  came_.notify_one();
}

void WorkBox::on_failure(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
  }
  came_.notify_one();
}

// A field that is added to LogitRow does not compile until it is carried.
void send_logits(collectives::Links& links, uint64_t step, const LogitRow& of_rank) {
  const auto& [replica, row, logits, fault, largest] = of_rank;
  collectives::ByteWriter head;
  head.put(WorkKind::kLogits);
  head.put(step);
  head.put<int32_t>(replica);
  head.put(row);
  head.put(largest);
  head.put_text(fault.substr(0, kMostFaultBytes));
  head.put<uint64_t>(logits.size());
  head.align();
  const std::span<const std::byte> parts[] = {head.bytes(), std::as_bytes(logits)};
  links.send(0, collectives::FrameKind::kWork, parts);
}

ReceivedLogits read_logits(collectives::ByteReader& reader, int vocab) {
  ReceivedLogits received;
  received.step = reader.get<uint64_t>();
  received.row.replica = reader.get<int32_t>();
  received.row.row = reader.get<int32_t>();
  received.row.largest = reader.get<int32_t>();
  received.row.fault = reader.get_text(kMostFaultBytes);
  received.row.logits = reader.get_array<float>(static_cast<size_t>(vocab));
  reader.expect_end();
  const bool suffices =
      received.row.logits.empty() && received.row.largest >= 0 && received.row.largest < vocab;
  if (std::ssize(received.row.logits) != vocab && !suffices)
    throw collectives::WrongBytes(fmt::format("{} logits, not {}", received.row.logits.size(), vocab));
  return received;
}

}  // namespace lockstep::runtime
