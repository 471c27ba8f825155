#include "lockstep/collectives/hosts/rank_messages.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace lockstep::collectives {
namespace {

constexpr size_t kMostWords = 256;
constexpr int64_t kMostRows = int64_t{1} << 31, kMostCols = int64_t{1} << 24;

// A message as it came, and the arguments whose views lie in it.
template <class Args>
struct Held {
  Frame frame;
  Shown<Args> shown;
};
struct HeldCombine : Held<CombineArgs> {
  Dispatched dispatched{host_memory()};
};

// The shapes of all views come first, so that numbers and arrays do not alternate.
std::vector<TensorView> read_views(ByteReader& reader, size_t most) {
  std::vector<TensorView> views;
  for (auto left = reader.get<uint32_t>(); left > 0; --left) {
    const auto dtype = reader.get<DType>();
    const auto rows = reader.get<int64_t>(), cols = reader.get<int64_t>();
    if (views.size() == most || (dtype != DType::kF32 && dtype != DType::kI32) || rows < 0 ||
        rows > kMostRows || cols < 0 || cols > kMostCols)
      throw WrongBytes(fmt::format("view {} of {}: {} rows of {}", views.size(), most, rows, cols));
    views.push_back(view_of(nullptr, dtype, {rows, cols}));
  }
  for (TensorView& view : views)
    view.data =
        reader.values<std::byte>(static_cast<size_t>(view.num_elements()) * size_of(view.dtype)).data();
  reader.expect_end();
  return views;
}

std::vector<TensorView> read_views(ByteReader& reader, std::span<const DType> expected) {
  const std::vector<TensorView> views = read_views(reader, expected.size());
  if (views.size() != expected.size())
    throw WrongBytes(fmt::format("{} arrays where {} belong", views.size(), expected.size()));
  for (size_t at = 0; at < views.size(); ++at)
    if (views[at].dtype != expected[at])
      throw WrongBytes(fmt::format("array {} is {}", at, name_of(views[at].dtype)));
  return views;
}

template <class Args>
std::shared_ptr<const ShownVerb> finish(std::shared_ptr<Held<Args>> held) {
  held->shown.verb = verb_of<Args>();
  return {held, &held->shown};
}

template <class Args>
std::shared_ptr<const ShownVerb> read_rows(Frame& frame, ByteReader& reader) {
  auto held = std::make_shared<Held<Args>>();
  held->shown.args.in = read_views(reader, std::array{DType::kF32})[0];
  held->frame = std::move(frame);  // the bytes stay where they are
  return finish<Args>(std::move(held));
}

std::shared_ptr<const ShownVerb> read_dispatch(Frame& frame, ByteReader& reader) {
  auto held = std::make_shared<Held<DispatchArgs>>();
  DispatchArgs& args = held->shown.args;
  const auto views = read_views(reader, std::array{DType::kF32, DType::kI32});
  args.x = views[0];
  args.expert_idx = views[1];
  if (args.expert_idx.rows() != args.x.rows())
    throw WrongBytes(fmt::format("experts of {} rows for {} rows", args.expert_idx.rows(), args.x.rows()));
  held->frame = std::move(frame);
  return finish<DispatchArgs>(std::move(held));
}

std::shared_ptr<const ShownVerb> read_combine(Frame& frame, ByteReader& reader, size_t num_members) {
  auto held = std::make_shared<HeldCombine>();
  held->dispatched.slot_of.resize(num_members, view_of(static_cast<int32_t*>(nullptr), {0, 0}));
  const auto first = reader.get<uint32_t>(), num = reader.get<uint32_t>();
  if (num > num_members || first > num_members - num)
    throw WrongBytes(fmt::format("slots of members {} to {} of {}", first, first + num, num_members));
  std::vector<DType> dtypes(num, DType::kI32);
  dtypes.push_back(DType::kF32);
  const auto views = read_views(reader, dtypes);
  std::copy_n(views.begin(), num, held->dispatched.slot_of.begin() + static_cast<std::ptrdiff_t>(first));
  held->shown.args.y = views.back();
  const int64_t slots = held->shown.args.y.rows();
  for (const TensorView& view : held->dispatched.slot_of)
    for (const int32_t slot : std::span<const int32_t>(view.as<int32_t>(), view.num_elements()))
      if (slot < -1 || slot >= slots) throw WrongBytes(fmt::format("slot {} of {}", slot, slots));
  held->shown.args.dispatched = &held->dispatched;
  held->frame = std::move(frame);
  return finish<CombineArgs>(std::move(held));
}

std::shared_ptr<const ShownVerb> read_shown(Verb verb, Frame& frame, ByteReader& reader, size_t num_members) {
  switch (verb) {
    case Verb::kAllReduce:
      return read_rows<AllReduceArgs>(frame, reader);
    case Verb::kReduceScatter:
      return read_rows<ReduceScatterArgs>(frame, reader);
    case Verb::kAllGather:
      return read_rows<AllGatherArgs>(frame, reader);
    case Verb::kColumnsToRows:
      return read_rows<ColumnsToRowsArgs>(frame, reader);
    case Verb::kFusedAllReduceAddNorm:
      return read_rows<FusedAllReduceAddNormArgs>(frame, reader);
    case Verb::kDispatch:
      return read_dispatch(frame, reader);
    case Verb::kCombine:
      return read_combine(frame, reader, num_members);
  }
  throw WrongBytes(fmt::format("verb {}", static_cast<int>(verb)));
}

}  // namespace

RankMessage::RankMessage(const RankMessageHead& head, const Tag& tag, Verb verb) {
  head_.put(head.group);
  head_.put(head.rank);
  head_.put(tag.engine_step);
  head_.put(tag.plan_step);
  head_.put(verb);
  head_.put_text(tag.what.substr(0, kMostWords));
}

void RankMessage::add(const TensorView& view) { views_.push_back(view); }

std::vector<std::byte>& RankMessage::room(size_t bytes) { return made_.emplace_back(bytes); }

Parts RankMessage::parts() {
  static constexpr std::byte kZeros[kArrayAlignment] = {};
  LOCKSTEP_CHECK_EQ(parts_.size(), size_t{0});
  head_.put(static_cast<uint32_t>(views_.size()));
  for (const TensorView& view : views_) {
    head_.put(view.dtype);
    head_.put(view.rows());
    head_.put(view.cols());
  }
  parts_ = {{}};
  size_t total = head_.bytes().size();
  for (const TensorView& view : views_) {
    const size_t padding = (kArrayAlignment - total % kArrayAlignment) % kArrayAlignment;
    parts_.push_back({kZeros, padding});
    const size_t bytes = static_cast<size_t>(view.num_elements()) * size_of(view.dtype);
    const auto* from = static_cast<const std::byte*>(view.data);
    total += padding + bytes;
    if (view.rows() > 1 && view.stride[0] != view.cols()) {
      const size_t row_bytes = static_cast<size_t>(view.cols()) * size_of(view.dtype);
      std::vector<std::byte>& packed = room(bytes);
      for (int64_t row = 0; bytes > 0 && row < view.rows(); ++row)
        std::memcpy(packed.data() + static_cast<size_t>(row) * row_bytes,
                    from + static_cast<size_t>(row * view.stride[0]) * size_of(view.dtype), row_bytes);
      from = packed.data();
    }
    parts_.push_back({from, bytes});
  }
  parts_[0] = head_.bytes();
  return parts_;
}

void add_args(RankMessage& message, const DispatchArgs& args, const Readers&) {
  message.add(args.x);
  message.add(args.expert_idx);
}

// Of the slots only those that hold rows of the readers, numbered anew in the order of the rows.
void add_args(RankMessage& message, const CombineArgs& args, const Readers& readers) {
  const std::vector<TensorView>& slot_of = args.dispatched->slot_of;
  message.add_number(static_cast<uint32_t>(readers.first));
  message.add_number(static_cast<uint32_t>(readers.num));
  const auto row_bytes = static_cast<size_t>(args.y.cols()) * sizeof(float);
  std::vector<int32_t> sent;
  for (size_t at = readers.first; at < readers.first + readers.num; ++at) {
    const TensorView& own = slot_of.at(at);
    auto* renamed = reinterpret_cast<int32_t*>(
        message.room(static_cast<size_t>(own.num_elements()) * sizeof(int32_t)).data());
    for (int64_t entry = 0; entry < own.num_elements(); ++entry) {
      const int32_t slot = own.as<int32_t>()[entry];
      renamed[entry] = slot < 0 ? -1 : static_cast<int32_t>(sent.size());
      if (slot >= 0) sent.push_back(slot);
    }
    message.add(view_of(renamed, {own.rows(), own.cols()}));
  }
  std::vector<std::byte>& rows = message.room(sent.size() * row_bytes);
  for (size_t at = 0; at < sent.size(); ++at)
    std::memcpy(rows.data() + at * row_bytes, args.y.as<float>() + sent[at] * args.y.stride[0], row_bytes);
  message.add(
      view_of(reinterpret_cast<float*>(rows.data()), {static_cast<int64_t>(sent.size()), args.y.cols()}));
}

ReceivedRankMessage read_rank_message(Frame frame, const std::function<size_t(uint32_t group)>& num_members) {
  ByteReader reader(frame.span());
  ReceivedRankMessage received;
  received.head = {.group = reader.get<uint32_t>(), .rank = reader.get<uint32_t>()};
  ShownFromAfar& far = received.from_afar;
  far.engine_step = reader.get<uint64_t>();
  far.plan_step = reader.get<uint32_t>();
  const auto verb = reader.get<Verb>();
  far.what = reader.get_text(kMostWords);
  far.shown = read_shown(verb, frame, reader, num_members(received.head.group));
  return received;
}

}  // namespace lockstep::collectives
