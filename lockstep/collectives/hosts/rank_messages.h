#pragma once
// What a rank shows to the ranks of its group in other processes, as bytes: of the arguments of a verb, what
// others read. The receiver gets arguments again whose views lie in the message, and gives them to the same
// code that reads the arguments of ranks beside it. Private to collectives.
#include <functional>
#include <list>
#include <span>
#include <vector>

#include "lockstep/collectives/hosts/bytes.h"
#include "lockstep/collectives/hosts/links.h"
#include "lockstep/collectives/in_process/shown.h"

namespace lockstep::collectives {

struct RankMessageHead {
  uint32_t group = 0;  // number of the group in its world
  uint32_t rank = 0;   // who shows
};

// A message made of the arguments, which it views where they lie in one piece; they must outlive it.
class RankMessage {
 public:
  RankMessage(const RankMessageHead& head, const Tag& tag, Verb verb);
  // Numbers of the verb's own come before its views.
  template <class T>
  void add_number(T value) {
    head_.put(value);
  }
  void add(const TensorView& view);
  // Views of what is made for this message.
  std::vector<std::byte>& room(size_t bytes);
  Parts parts();  // once, when all is added

 private:
  ByteWriter head_;
  std::vector<TensorView> views_;
  std::list<std::vector<std::byte>> made_;
  std::vector<std::span<const std::byte>> parts_;
};

// The members of the group that will read the message, for verbs in which each reads something else.
struct Readers {
  size_t first = 0, num = 0;
};
template <class Args>
void add_args(RankMessage& message, const Args& args, const Readers&) {
  message.add(args.in);
}
void add_args(RankMessage& message, const DispatchArgs& args, const Readers&);
void add_args(RankMessage& message, const CombineArgs& args, const Readers& readers);

struct ReceivedRankMessage {
  RankMessageHead head;
  ShownFromAfar from_afar;
};
// Throws WrongBytes. num_members(group) is how many members a group has, or throws.
ReceivedRankMessage read_rank_message(Frame frame, const std::function<size_t(uint32_t group)>& num_members);

}  // namespace lockstep::collectives
